"""The losses of masked patch prediction."""

import keras

from keras_vit.models.masked_patches import TARGETS


def masked_patch_loss(target="mean_colour"):
    """The loss of a masked patch predictor: a mean over corrupted patches.

    Args:
        target: as in `masked_patch_predictor`.

    Returns:
        A `keras.losses.Loss`, cross-entropy of colours, or of pixels the mean squared error. The
        sample weights of `keras_vit.data.mask_patches` tell it which patches are corrupted.

    Raises:
        ValueError: if the target is unknown.

    Reference:
        Section B.1.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> loss = masked_patch_loss("mean_colour")
    >>> logits = np.zeros((2, 4, 512), "float32")
    >>> weights = np.array([[2, 0, 2, 0]] * 2, "float32")
    >>> round(float(loss(np.zeros((2, 4), "int32"), logits, sample_weight=weights)), 3)
    6.238
    """
    if target not in TARGETS:
        raise ValueError(f"`target` must be one of {TARGETS}. Received: target={target!r}")
    if target == "pixels":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
