"""Segment images of any size with a sliding window, and measure pixel accuracy and mean IoU."""

import dataclasses
import itertools
import logging
import math

import keras
import numpy as np
import tqdm
from keras import ops

from keras_vit.core.arguments import IGNORED
from keras_vit.core.image_spec import MAX_PIXELS
from keras_vit.data.left_out import Skipped
from keras_vit.data.sources.masks import examples_of
from keras_vit.data.sources.source import Source
from keras_vit.evaluation.classification import check_same_classes
from keras_vit.evaluation.metrics import confusion_matrix


def segment(
    model: keras.Model, image: np.ndarray, stride: int | None = None, batch_size: int = 8
) -> np.ndarray:
    """Compute the logits of each pixel of an image with a sliding window.

    A window has the image size of the model. The image is resized, keeping its aspect ratio, to the
    smallest size that covers a window. Logits of overlapping windows are averaged, and interpolated
    to the original size.

    Args:
        model: a `keras_vit.segmenter` with a fixed image size.
        image: uint8 array `(height, width, 3)`.
        stride: number of pixels from the start of a window to the start of the next window; by
            default the side of a window, so that only the last windows overlap other windows.
        batch_size: number of windows per batch.

    Returns:
        A float32 array `(height, width, num_classes)`.

    Raises:
        ValueError: if the model has no fixed image size, `image` is not uint8, `stride` is not
            positive or larger than the window, or a narrow image would be resized to too many
            pixels.

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
            "`model` must be a `keras_vit.segmenter` with a fixed image size. "
            f"Received: a model from {model.input_shape} to {model.output_shape}"
        )
    if image.dtype != np.uint8:
        raise ValueError(f"`image` must have the type uint8. Received: {image.dtype}")
    if stride is not None and not 1 <= stride <= min(window):
        raise ValueError(
            f"`stride` must be from 1 to {min(window)}, the side of a window. Received: {stride=}"
        )
    strides = window if stride is None else (stride, stride)
    sides = image.shape[:2]
    scale = max(target / side for target, side in zip(window, sides, strict=True))
    size = [max(round(side * scale), target) for side, target in zip(sides, window, strict=True)]
    if math.prod(size) > MAX_PIXELS:
        raise ValueError(
            f"`image`, resized to cover {window} pixels, must have at most {MAX_PIXELS:,} pixels. "
            f"Received: an image of {sides}, which would become {tuple(size)}"
        )
    pixels = _resize(image.astype("float32"), size) / 127.5 - 1
    corners = itertools.product(*map(_starts, size, window, strides))
    windows = [(slice(y, y + window[0]), slice(x, x + window[1])) for y, x in corners]
    logits = model.predict(np.stack([pixels[w] for w in windows]), batch_size, verbose=0)
    total, count = np.zeros((*size, logits.shape[-1]), "float32"), np.zeros((*size, 1), "float32")
    for slices, window_logits in zip(windows, logits, strict=True):
        total[slices] += window_logits
        count[slices] += 1
    return _resize(total / count, sides)


def _starts(size, window, stride):
    """Return where windows begin along one axis; the last window ends where the image ends."""
    return sorted({*range(0, size - window, stride), size - window})


def _resize(image, size):
    if tuple(size) == image.shape[:2]:
        return image
    resized = ops.image.resize(image, tuple(size), "bilinear", data_format="channels_last")
    return ops.convert_to_numpy(resized)


@dataclasses.dataclass(frozen=True)
class PixelCounts:
    """The confusion matrix of the pixels of a dataset.

    Args:
        class_names: names of the classes.
        confusion: int64 `(classes, classes)`; rows are classes of masks, columns predictions.
        images: number of images.
    """

    class_names: tuple[str, ...]
    confusion: np.ndarray
    images: int

    @property
    def iou(self):
        """The IoU of each class; NaN for classes that are in neither masks nor predictions."""
        right = np.diag(self.confusion).astype("float64")
        union = self.confusion.sum(0) + self.confusion.sum(1) - right
        return np.divide(right, union, where=union > 0, out=np.full(len(right), np.nan))

    def summary(self):
        """Return the number of images, the pixel accuracy, and the mean of the IoUs."""
        return {
            "images": self.images,
            "accuracy": float(np.trace(self.confusion) / max(self.confusion.sum(), 1)),
            "mean_iou": float(np.nanmean(self.iou)),
        }


def evaluate_segmentation(
    model: keras.Model,
    source: Source,
    stride: int | None = None,
    batch_size: int = 8,
    max_skipped: float = 0.1,
) -> PixelCounts:
    """Compare a segmenter's predictions with the masks of a dataset, at the size of the masks.

    Args:
        model: as in `segment`.
        source: a `Source` with masks, such as `keras_vit.data.find_source("masks:DIR", "test")`.
        stride: as in `segment`.
        batch_size: as in `segment`.
        max_skipped: greatest share of images that may be skipped because the image or its mask
            cannot be decoded.

    Returns:
        `PixelCounts`.

    Raises:
        ValueError: if the dataset has no masks, or not the model's classes; if too many images are
            skipped; or as in `segment`.
    """
    num_classes = len(source.class_names)
    if model.output_shape[-1] != num_classes:
        raise ValueError(
            "`source` must have masks of the model's classes. Received: "
            f"{num_classes} classes, and a model of the output shape {model.output_shape}"
        )
    if names := getattr(model, "class_names", None):
        check_same_classes(list(names), list(source.class_names), must_be_equal=True)
    confusion, num_images = np.zeros((num_classes, num_classes), "int64"), 0
    skipped = Skipped(source, max_skipped)
    examples = examples_of(source, skipped)
    for image, mask in tqdm.tqdm(examples, "segmented", source.num_examples, unit="image"):
        predicted, known = segment(model, image, stride, batch_size).argmax(-1), mask != IGNORED
        confusion += confusion_matrix(mask[known], predicted[known], num_classes)
        num_images += 1
    if len(skipped):
        logging.getLogger("keras_vit").warning("%s", skipped)
    return PixelCounts(source.class_names, confusion, num_images)
