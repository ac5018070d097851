"""The names of the classes that published checkpoints were trained on."""

import collections
import functools
import importlib.resources

import numpy as np

from keras_vit.core.arguments import is_integer

# `label_files/README.md` says where the lists come from and what they were compared with.
LABEL_FILES = {1000: "imagenet2012.txt", 21843: "imagenet21k.txt"}

# Rows of probabilities in bfloat16 (8 bits) miss a sum of one by up to 0.4 %. Logits of so many
# classes are not all positive with a sum this close to one.
PROBABILITY_SUM_TOLERANCE = 0.01


def decode_predictions(logits, top=5):
    """Names the most probable ImageNet classes, from the logits of a batch of images.

    It takes the place of `keras.applications`' function of this name and returns the same tuples.
    That one repeats the scores that it is given; the models here return logits, so this one applies
    the softmax. Rows that are probabilities already (none negative, their sum one) are left as they
    are, because a second softmax would make them almost equal.

    The classes of ImageNet-21k contain each other (fish, tench) and its models were often trained
    with a sigmoid for each class: the order is right all the same, and the probability is a class's
    share among all of them.

    Args:
        logits: array or tensor of shape `(batch, classes)`: 1000 classes are ImageNet-2012's,
            21843 are ImageNet-21k's in the order of Google's checkpoints (ViT, AugReg, BiT).
        top: how many classes to return for each image.

    Returns:
        A list with an entry for each image, which is a list of `top` tuples
        `(synset, name, probability)`, the most probable first. Names are those of
        `keras.applications` (`"great_white_shark"`); several synsets can share a name (`"crane"`).

    Raises:
        ValueError: If the shape or `top` does not fit, if a value is not finite, or if all the
            values of a row are equal: they come from a head that is zero, not from a prediction.

    Reference:
        `keras.applications.imagenet_utils.decode_predictions`; for the order of the 21,843 classes
        google-research/big_transfer#7.

    Example:
    >>> logits = np.zeros((1, 1000))
    >>> logits[0, :2] = 8, 10
    >>> decode_predictions(logits, top=2)
    [[('n01443537', 'goldfish', 0.84...), ('n01440764', 'tench', 0.11...)]]
    """
    logits = _to_float64(logits)
    if logits.ndim != 2 or logits.shape[1] not in LABEL_FILES:
        raise ValueError(
            "`logits` must have the shape (batch, 1000) for ImageNet-2012 or (batch, 21843) for "
            f"ImageNet-21k. Received: logits.shape={logits.shape}"
        )
    num_classes = logits.shape[1]
    if not is_integer(top) or not 1 <= top <= num_classes:
        raise ValueError(
            f"`top` must be an integer from 1 to the {num_classes} classes. Received: top={top!r}"
        )
    _check_values(logits)
    labels = read_labels(num_classes)
    # By logits: the probabilities of the least probable classes can all be rounded to zero.
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :top]
    probabilities = np.take_along_axis(_to_probabilities(logits), order, axis=-1)
    return [
        [(*labels[index], probability) for index, probability in zip(*row, strict=True)]
        for row in zip(order.tolist(), probabilities.tolist(), strict=True)
    ]


@functools.cache
def read_labels(num_classes):
    """The pairs `(synset, name)` of 1000 or 21843 classes, in the order of a model's outputs."""
    folder = importlib.resources.files("keras_vit.data") / "label_files"
    lines = (folder / LABEL_FILES[num_classes]).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines)


@functools.cache
def imagenet_class_names(num_classes):
    """The names of 1000 or 21843 classes, each of them once.

    Where several classes have one name, as the two cranes, the synset follows it.

    Args:
        num_classes: 1000 for ImageNet-2012, 21843 for ImageNet-21k.

    Returns:
        A list of strings, in the order of a model's outputs.

    Example:
    >>> names = imagenet_class_names(1000)
    >>> names[0], names[134], names[517]
    ('tench', 'crane_n02012849', 'crane_n03126707')
    """
    labels = read_labels(num_classes)
    counts = collections.Counter(name.casefold() for _, name in labels)
    return [name if counts[name.casefold()] == 1 else f"{name}_{synset}" for synset, name in labels]


def _to_float64(values):
    # PyTorch refuses NumPy a tensor that has a gradient, is on an accelerator, or is bfloat16.
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    return np.asarray(values, "float64")


def _check_values(logits):
    not_finite = np.flatnonzero(~np.isfinite(logits).all(axis=-1))
    if not_finite.size:
        raise ValueError(
            "`logits` must be finite. Received: logits with NaN or infinite values in row "
            f"{not_finite[0]} ({not_finite.size} of {len(logits)} rows)"
        )
    equal = np.flatnonzero((logits == logits[:, :1]).all(axis=-1))
    if equal.size:
        # Google set the head to zero in the ImageNet-21k files of the first release
        # (google-research/vision_transformer#10), and ours start there for fine-tuning.
        raise ValueError(
            "`logits` must differ from class to class. All values equal mean that the model's head "
            "is zero: it is new and untrained, or its checkpoint was published without it. "
            f"Received: logits with all values equal to {logits[equal[0], 0]} in row {equal[0]} "
            f"({equal.size} of {len(logits)} rows)"
        )


def _to_probabilities(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=-1, keepdims=True)
    sums_to_one = np.abs(logits.sum(axis=-1) - 1) < PROBABILITY_SUM_TOLERANCE
    are_probabilities = (logits >= 0).all(axis=-1) & sums_to_one
    return np.where(are_probabilities[:, None], logits, softmax)
