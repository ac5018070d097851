"""Classes of pixels of images of any size, and how well they fit masks."""

import dataclasses
import itertools

import numpy as np
import tqdm
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.data.images.masks import IGNORED, examples_of


@dataclasses.dataclass(frozen=True)
class PixelCounts:
    """How many pixels of each class are predicted as which.

    Args:
        class_names: names of the classes.
        confusion: int64 `(classes, classes)`: rows are the classes of the masks.
        images: number of images.
    """

    class_names: tuple[str, ...]
    confusion: np.ndarray
    images: int

    @property
    def iou(self):
        """The intersection over union of each class; NaN for one that is nowhere."""
        right = np.diag(self.confusion).astype("float64")
        union = self.confusion.sum(0) + self.confusion.sum(1) - right
        return np.divide(right, union, where=union > 0, out=np.full(len(right), np.nan))

    def summary(self):
        """Return the pixel accuracy and the mean IoU over the classes that are somewhere."""
        return {
            "images": self.images,
            "accuracy": float(np.trace(self.confusion) / max(self.confusion.sum(), 1)),
            "mean_iou": float(np.nanmean(self.iou)),
        }


def evaluate_segmentation(model, source, stride=None, batch_size=8):
    """Compare a segmenter's predictions with the masks of a dataset, at the masks' own size.

    Args:
        model: a `keras_vit.segmenter` of one image size, which is the window of `segment`.
        source: a `Source` of `keras_vit.data.find_source` with masks, `masks:DIR`.
        stride: as in `segment`.
        batch_size: windows in one step.

    Returns:
        `PixelCounts`.

    Raises:
        ValueError: if the dataset has no masks or other classes, or as `segment`.

    Reference:
        Segmenter (arXiv 2105.05633), section 4.1.
    """
    num_classes = len(source.class_names)
    if not source.has_masks or model.output_shape[-1] != num_classes:
        raise ValueError(
            "`source` must have masks of the model's classes. Received: "
            f"{num_classes} classes {'with' if source.has_masks else 'without'} masks, and a model "
            f"of the output shape {model.output_shape}"
        )
    confusion, count = np.zeros((num_classes, num_classes), "int64"), 0
    total = source.num_examples
    for image, mask in tqdm.tqdm(examples_of(source), "segmented", total, unit="image"):
        predicted = segment(model, image, stride, batch_size).argmax(-1)
        pairs = num_classes * mask + predicted
        confusion += np.bincount(pairs[mask != IGNORED], minlength=num_classes**2).reshape(
            confusion.shape
        )
        count += 1
    return PixelCounts(source.class_names, confusion, count)


def segment(model, image, stride=None, batch_size=8):
    """Compute the logits of the classes of an image's pixels by windows that slide over it.

    The image is resized such that it just covers a window of the model's size, its aspect ratio is
    kept. Logits of overlapping windows are averaged and interpolated to the image's own size.

    Args:
        model: a `keras_vit.segmenter` of one image size.
        image: uint8 array `(height, width, 3)`.
        stride: pixels between two windows; by default a window's side, so that only the last
            windows overlap others.
        batch_size: windows in one step.

    Returns:
        A float32 array `(height, width, num_classes)`.

    Raises:
        ValueError: if the model is of any size, or `stride` is not positive.

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
    strides = window if stride is None else 2 * (check_integer("stride", stride, minimum=1),)
    scale = max(side / own for side, own in zip(window, image.shape[:2], strict=True))
    size = [max(round(own * scale), side) for own, side in zip(image.shape, window, strict=False)]
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
