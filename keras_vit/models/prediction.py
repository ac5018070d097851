"""Predictions on checked images."""

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.core.pixels import (
    check_pixels,
    check_range,
    scales_inputs,
    warn_of_range,
    warned_of_range,
)


def predict_images(model, extractor, images, batch_size=32, verbose=0):
    """Check images, then call `extractor.predict`.

    An array is checked first; other sources are checked batch by batch.

    Args:
        model: the model that the images are for.
        extractor: a model that takes the same images.
        images: array, `tf.data.Dataset`, or another source of batches for `keras.Model.predict`.
        batch_size: images in one step.
        verbose: as in `keras.Model.predict`.

    Returns:
        What `extractor.predict` returns.

    Raises:
        ValueError: if `images` is empty, does not have the model's input shape, or is not scaled to
            [-1, 1]; or `batch_size` is not a positive integer.
    """
    if batch_size is not None:
        check_integer("batch_size", batch_size, 1)
    options = {"batch_size": batch_size, "verbose": verbose}
    is_array = hasattr(images, "dtype")
    if is_array or images is None or isinstance(images, (list, tuple, dict, str, int, float)):
        check_shape(model, images)
        check_pixels(images, model=model)
        return extractor.predict(images, **options)
    if hasattr(images, "element_spec") or isinstance(images, keras.utils.PyDataset):
        _check_first_batch(model, images)
    found = _WithRange(extractor).predict(images, **options)
    if not scales_inputs(model):
        bounds = float(np.min(found["low"])), float(np.max(found["high"]))
        check_range(bounds)
        warn_of_range(bounds)
    return found["outputs"]


class _WithRange(keras.Model):
    """A model, and the least and the greatest value of each of its images."""

    def __init__(self, extractor):
        # Under another policy the images would be rounded.
        super().__init__(name="with_range", dtype="float32")
        self.extractor = extractor

    def call(self, images):
        axes = tuple(range(1, len(images.shape)))
        # TensorFlow's maximum may pass over NaN.
        has_nan = ops.any(ops.isnan(images), axis=axes)
        return {
            "outputs": self.extractor(images, training=False),
            "low": ops.min(images, axis=axes),
            "high": ops.where(has_nan, np.nan, ops.max(images, axis=axes)),
        }


def _check_first_batch(model, dataset):
    if isinstance(dataset, keras.utils.PyDataset):
        batches = [] if dataset.num_batches == 0 else [dataset[0]]
    else:
        batches = dataset.take(1)
    for batch in batches:
        # Labels may come with the images.
        images = batch[0] if isinstance(batch, tuple) else batch
        check_shape(model, images)
        # The range of all batches decides on a warning.
        with warned_of_range():
            check_pixels(images, model=model)
        return
    raise ValueError("`images` must have at least one batch. Received: an empty dataset")


def check_shape(model, images):
    """Raise an error unless images are an array of at least one image of the model's shape."""
    expected = tuple(model.inputs[0].shape)[1:]
    shape = tuple(getattr(images, "shape", ()))
    if (
        len(shape) != len(expected) + 1
        or shape[0] == 0
        or any(size not in (None, n) for size, n in zip(expected, shape[1:], strict=True))
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in expected)
        what = f"shape {shape}" if hasattr(images, "shape") else f"type {type(images).__name__}"
        raise ValueError(
            f"`images` must be an array (batch, {sizes}) of at least one image. "
            f"Received: images of {what}"
        )
