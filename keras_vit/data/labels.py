"""`decode_predictions`: the names of the most probable classes for logits."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.special

from keras_vit.core.arguments import is_integer
from keras_vit.core.text import LABEL_FILES, check_class_names, read_labels

# Probabilities in bfloat16 (8 bits) have a sum that differs from 1 by up to 0.4 %. Logits are
# hardly ever all positive with a sum this close to 1.
PROBABILITY_SUM_TOLERANCE = 0.01


def decode_predictions(
    logits: npt.ArrayLike, top: int | None = None, class_names: Sequence[str] | None = None
) -> list[list[tuple[str, str, float]]]:
    """Return the most probable classes for the logits of a batch of images.

    The result has the form of `decode_predictions` in `keras.applications`. Probabilities are the
    softmax of the logits. If a row already contains probabilities (no negative value, sum 1), it is
    not changed: a second softmax would make all values almost equal.

    Models for ImageNet-21k, whose classes overlap (fish, tench), were often trained with a sigmoid
    per class. The order of the returned classes is then correct, but their probabilities are not
    what the model was trained to predict.

    Args:
        logits: array or tensor of shape `(batch, classes)`. Without `class_names`, there must be
            1000 classes (ImageNet-2012), or 21843 (ImageNet-21k in the order of Google's ViT,
            AugReg and BiT checkpoints).
        top: number of classes to return per image; `None` for 5, or all if there are fewer.
        class_names: names of the classes, such as `model.class_names`; `None` for ImageNet's.

    Returns:
        One list per image, of `top` tuples `(synset, name, probability)`, the most probable class
        first. Names are as in `keras.applications` (`"great_white_shark"`); several synsets can
        share a name (`"crane"`). With `class_names`, tuples have the number of the class instead of
        the synset.

    Raises:
        ValueError: if the shape or `top` is invalid, a value is not finite, all values of a row are
            equal (as from a head of zeros), or the number of distinct names is not the number of
            classes.

    Reference:
        `keras.applications.imagenet_utils.decode_predictions`; google-research/big_transfer#7 for
        the order of the 21,843 classes.

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
    # Sort by logits, because small probabilities can be rounded to zero.
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :top]
    probabilities = np.take_along_axis(_to_probabilities(logits), order, axis=-1)
    return [
        [(*labels[index], probability) for index, probability in zip(*row, strict=True)]
        for row in zip(order.tolist(), probabilities.tolist(), strict=True)
    ]


def _labels(logits, class_names):
    """Return the synset (or number) and the name of each class."""
    if logits.ndim != 2 or (class_names is None and logits.shape[1] not in LABEL_FILES):
        raise ValueError(
            "`logits` must have the shape (batch, classes); without `class_names`, (batch, 1000) "
            "for ImageNet-2012 or (batch, 21843) for ImageNet-21k. "
            f"Received: logits.shape={logits.shape}"
        )
    if class_names is None:
        return read_labels(logits.shape[1])
    return list(enumerate(check_class_names(class_names, num_classes=logits.shape[1])))


def _to_float64(values):
    # NumPy cannot read PyTorch tensors that need a gradient, on accelerators or in bfloat16.
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
        # The heads of Google's first ImageNet-21k files are zero
        # (google-research/vision_transformer#10), and new heads of this package start at zero.
        raise ValueError(
            "`logits` must differ from class to class. If all values are equal, the model's head "
            "is zero: the head is untrained, or the checkpoint was published without a head. "
            f"Received: logits with all values equal to {logits[equal[0], 0]} in row {equal[0]} "
            f"({equal.size} of {len(logits)} rows)"
        )


def _to_probabilities(logits):
    sums_to_one = np.abs(logits.sum(axis=-1) - 1) < PROBABILITY_SUM_TOLERANCE
    are_probabilities = (logits >= 0).all(axis=-1) & sums_to_one
    return np.where(are_probabilities[:, None], logits, scipy.special.softmax(logits, axis=-1))
