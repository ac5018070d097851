"""Evaluation of segmenters: pixel accuracy and mean IoU."""

import dataclasses
import logging

import keras
import numpy as np
import tqdm

from keras_vit.core.choices import IGNORED
from keras_vit.data.skipped import Skipped
from keras_vit.data.sources.base import Source
from keras_vit.data.sources.masks import examples_of
from keras_vit.evaluation.class_names import check_same_classes
from keras_vit.evaluation.segmentation.windows import segment


@dataclasses.dataclass(frozen=True)
class PixelCounts:
    """Confusion matrix of the pixels of a dataset.

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
        """The IoU of each class; NaN for one that neither masks nor predictions have."""
        right = np.diag(self.confusion).astype("float64")
        union = self.confusion.sum(0) + self.confusion.sum(1) - right
        return np.divide(right, union, where=union > 0, out=np.full(len(right), np.nan))

    def summary(self):
        """Return the pixel accuracy and the mean IoU over the classes with pixels."""
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
    """Compare a segmenter's predictions with the masks of a dataset, at the masks' own size.

    Args:
        model: a `keras_vit.segmenter` of one image size, which is the window of `segment`.
        source: a `Source` of `keras_vit.data.find_source` with masks, `masks:DIR`.
        stride: as in `segment`.
        batch_size: windows in one step.
        max_skipped: greatest share of images that may be skipped because they or their masks cannot
            be decoded.

    Returns:
        `PixelCounts`.

    Raises:
        ValueError: if the dataset has no masks or other classes, more images are skipped, or as
            `segment`.
    """
    num_classes = len(source.class_names)
    if not source.has_masks or model.output_shape[-1] != num_classes:
        raise ValueError(
            "`source` must have masks of the model's classes. Received: "
            f"{num_classes} classes {'with' if source.has_masks else 'without'} masks, and a model "
            f"of the output shape {model.output_shape}"
        )
    if names := getattr(model, "class_names", None):
        check_same_classes(list(names), list(source.class_names), must_be_equal=True)
    confusion, num_images = np.zeros((num_classes, num_classes), "int64"), 0
    skipped = Skipped(source, max_skipped)
    examples = tqdm.tqdm(
        examples_of(source, skipped), "segmented", source.num_examples, unit="image"
    )
    for image, mask in examples:
        predicted = segment(model, image, stride, batch_size).argmax(-1)
        pairs = num_classes * mask + predicted
        confusion += np.bincount(pairs[mask != IGNORED], minlength=num_classes**2).reshape(
            confusion.shape
        )
        num_images += 1
    if len(skipped):
        logging.getLogger("keras_vit").warning("%s", skipped)
    return PixelCounts(source.class_names, confusion, num_images)
