"""The most probable classes of logits, by name."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.special

from keras_vit.core.arguments import is_integer
from keras_vit.core.text import LABEL_FILES, check_class_names, read_labels

# The sum of probabilities in bfloat16 (8 bits) differs from one by up to 0.4 %. Logits of so many
# classes are never all positive with a sum this close to one.
PROBABILITY_SUM_TOLERANCE = 0.01


def decode_predictions(
    logits: npt.ArrayLike, top: int | None = None, class_names: Sequence[str] | None = None
) -> list[list[tuple[str, str, float]]]:
    """Return the most probable classes for the logits of a batch of images.

    It returns the same tuples as the function of this name in `keras.applications`, but applies the
    softmax, because the models here return logits. Rows that are probabilities (none negative, sum
    one) stay as they are: a second softmax would make them almost equal.

    The classes of ImageNet-21k overlap (fish, tench), and its models were often trained with a
    sigmoid per class: their order is right nevertheless, and the probability is the softmax.

    Args:
        logits: array or tensor of shape `(batch, classes)`: without `class_names` 1000 for
            ImageNet-2012, or 21843 for ImageNet-21k in the order of the checkpoints of Google (ViT,
            AugReg, BiT).
        top: number of classes to return per image; `None` for 5, or all if there are fewer.
        class_names: names of the classes, such as `model.class_names`; `None` for ImageNet's.

    Returns:
        A list with an entry per image, which is a list of `top` tuples
        `(synset, name, probability)`, the most probable first. Names are those of
        `keras.applications` (`"great_white_shark"`); several synsets can share a name (`"crane"`).
        With `class_names` the number of the class stands in place of its synset.

    Raises:
        ValueError: if the shape or `top` is invalid, a value is not finite, all values of a row are
            equal, as the outputs of a head that is zero, or there are not as many different names
            as classes.

    Reference:
        `keras.applications.imagenet_utils.decode_predictions`; for the order of the 21,843 classes
        google-research/big_transfer#7.

    Example:
    >>> logits = np.zeros((1, 1000))
    >>> logits[0, :2] = 8, 10
    >>> decode_predictions(logits, top=2)
    [[('n01443537', 'goldfish', 0.84...), ('n01440764', 'tench', 0.11...)]]
    >>> decode_predictions([[0.0, 2.0]], top=1, class_names=["cat", "dog"])
    [[(1, 'dog', 0.88...)]]
    """
    logits = _to_float64(logits)
    labels = _labels(logits, class_names)
    num_classes = len(labels)
    top = min(5, num_classes) if top is None else top
    if not is_integer(top) or not 1 <= top <= num_classes:
        raise ValueError(
            f"`top` must be an integer from 1 to the {num_classes} classes. Received: top={top!r}"
        )
    _check_values(logits)
    # By logits, because the smallest probabilities can all be rounded to zero.
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :top]
    probabilities = np.take_along_axis(_to_probabilities(logits), order, axis=-1)
    return [
        [(*labels[index], probability) for index, probability in zip(*row, strict=True)]
        for row in zip(order.tolist(), probabilities.tolist(), strict=True)
    ]


def _labels(logits, class_names):
    """Return the synset, or the number, and the name of each class."""
    if logits.ndim != 2 or (class_names is None and logits.shape[1] not in LABEL_FILES):
        raise ValueError(
            "`logits` must have the shape (batch, classes), unless `class_names` are given (batch, "
            "1000) for ImageNet-2012 or (batch, 21843) for ImageNet-21k. "
            f"Received: logits.shape={logits.shape}"
        )
    if class_names is None:
        return read_labels(logits.shape[1])
    return list(enumerate(check_class_names(class_names, num_classes=logits.shape[1])))


def _to_float64(values):
    # NumPy cannot read tensors of PyTorch that have a gradient, are on an accelerator, or bfloat16.
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
        # As in the ImageNet-21k files of the first release
        # (google-research/vision_transformer#10), and in new heads of this package.
        raise ValueError(
            "`logits` must differ from class to class. All values equal mean that the model's head "
            "is zero: it is new and untrained, or its checkpoint was published without it. "
            f"Received: logits with all values equal to {logits[equal[0], 0]} in row {equal[0]} "
            f"({equal.size} of {len(logits)} rows)"
        )


def _to_probabilities(logits):
    sums_to_one = np.abs(logits.sum(axis=-1) - 1) < PROBABILITY_SUM_TOLERANCE
    are_probabilities = (logits >= 0).all(axis=-1) & sums_to_one
    return np.where(are_probabilities[:, None], logits, scipy.special.softmax(logits, axis=-1))
