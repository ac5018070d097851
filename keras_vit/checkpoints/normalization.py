"""The normalization of images, which the patch projection absorbs so that they are in [-1, 1].

A model that was trained on `(p - mean) / deviation` of pixels `p` in [0, 1] computes the same of
`x = 2 p - 1` with the kernel `W / (2 deviation)` and with `sum(W (0.5 - mean) / deviation)` added
to the bias, as big_vision converts the weights of DeiT III (`models/vit.py`).
"""

import numpy as np

KERNEL = "patch_embedding/projection/kernel"
BIAS = "patch_embedding/projection/bias"


def absorb(kernel, image_spec):
    """Return the kernel for images in [-1, 1], and what is added to the bias, in float64.

    `kernel` is float32 `(height, width, channels, filters)`.
    """
    mean, deviation = _columns(image_spec)
    kernel = kernel.astype("float64")
    return kernel / (2 * deviation), _shift(kernel, mean, deviation)


def released(values, image_spec):
    """Return kernel and bias, by path, for normalized images; the inverse of `absorb`.

    `values` are those of a model for images in [-1, 1].
    """
    mean, deviation = _columns(image_spec)
    kernel = values[KERNEL].astype("float64") * (2 * deviation)
    bias = values.get(BIAS, 0) - _shift(kernel, mean, deviation)
    return {KERNEL: kernel.astype("float32"), BIAS: bias.astype("float32")}


def check_channels(image_spec, channels, source):
    """Raise an error if mean and deviation are neither one number nor one per channel."""
    if any(len(values) not in (1, channels) for values in image_spec.normalization):
        raise ValueError(
            f"Mean and standard deviation of pixels must be one number or {channels}, one for each "
            f"channel. Received: {source}, with {image_spec.normalization}"
        )


def _columns(image_spec):
    """Return mean and deviation, float64 `(channels or 1, 1)`, as the last axes of a kernel."""
    return (np.array(values, "float64")[:, None] for values in image_spec.normalization)


def _shift(kernel, mean, deviation):
    return (kernel * ((0.5 - mean) / deviation)).sum(axis=(0, 1, 2))
