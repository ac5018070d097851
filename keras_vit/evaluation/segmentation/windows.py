"""Segmentation of images of any size by a sliding window."""

import itertools
import math

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.core.pixels import MAX_PIXELS


def segment(
    model: keras.Model, image: np.ndarray, stride: int | None = None, batch_size: int = 8
) -> np.ndarray:
    """Compute the logits of each pixel of an image with a sliding window.

    The image is resized to just cover a window of the model's size; its aspect ratio is kept.
    Logits of overlapping windows are averaged and interpolated to the image's own size.

    Args:
        model: a `keras_vit.segmenter` of one image size.
        image: uint8 array `(height, width, 3)`.
        stride: pixels between two windows; by default a window's side, so that only the last
            windows overlap others.
        batch_size: windows in one step.

    Returns:
        A float32 array `(height, width, num_classes)`.

    Raises:
        ValueError: if the model is of any size, `image` is another array, `stride` is not positive
            or larger than the window, or the image is so narrow that it would have to become too
            large.

    Reference:
        Segmenter (arXiv 2105.05633), section 4.1.

    Example:
    >>> model = keras_vit.ViT_Ti16(image_size=32)
    >>> model = keras_vit.segmenter(keras_vit.backbone(model, kind="blocks"), num_classes=3)
    >>> keras_vit.evaluation.segment(model, np.zeros((50, 80, 3), "uint8")).shape
    (50, 80, 3)
    """
    window = model.input_shape[1:3]
    if None in window or model.output_shape[1:3] != window:
        raise ValueError(
            "`model` must be a `keras_vit.segmenter` of one image size. "
            f"Received: a model from {model.input_shape} to {model.output_shape}"
        )
    is_image = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
    if not is_image or image.shape[-1] != 3 or not image.size:
        found = (
            f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else f"{image!r:.60}"
        )
        raise ValueError(
            f"`image` must be a uint8 array (height, width, 3), with pixels. Received: {found}"
        )
    check_integer("batch_size", batch_size, minimum=1)
    if stride is not None and check_integer("stride", stride, minimum=1) > min(window):
        raise ValueError(
            f"`stride` must be at most {min(window)}, a side of the window. Received: {stride=}"
        )
    strides = window if stride is None else (stride, stride)
    scale = max(side / own for side, own in zip(window, image.shape[:2], strict=True))
    size = [max(round(own * scale), side) for own, side in zip(image.shape, window, strict=False)]
    if math.prod(size) > MAX_PIXELS:
        raise ValueError(
            f"`image` must cover a window of {window} with at most {MAX_PIXELS:,} pixels. "
            f"Received: an image of {image.shape[:2]}, which would become {tuple(size)}"
        )
    pixels = _resize(image.astype("float32"), size) / 127.5 - 1
    starts = [_starts(*sides) for sides in zip(size, window, strides, strict=True)]
    corners = list(itertools.product(*starts))
    places = [(slice(y, y + window[0]), slice(x, x + window[1])) for y, x in corners]
    logits = model.predict(np.stack([pixels[p] for p in places]), batch_size, verbose=0)
    total, count = np.zeros((*size, logits.shape[-1]), "float32"), np.zeros((*size, 1), "float32")
    for place, found in zip(places, logits, strict=True):
        total[place] += found
        count[place] += 1
    return _resize(total / count, image.shape[:2])


def _starts(size, window, stride):
    """Return where windows begin along one axis; the last one ends at the end."""
    return sorted({*range(0, size - window, stride), size - window})


def _resize(image, size):
    if tuple(size) == image.shape[:2]:
        return image
    resized = ops.image.resize(image, tuple(size), "bilinear", data_format="channels_last")
    return ops.convert_to_numpy(resized)
