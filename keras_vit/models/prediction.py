"""What a model computes of images that are checked, all batches of them."""

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.core.pixels import (
    check_floats,
    check_pixels,
    check_range,
    scales_inputs,
    value_range,
    warn_of_range,
)


def predict_images(model, extractor, images, batch_size=32, verbose=0):
    """Call `extractor.predict` on images that are checked to be ones for a model.

    The values of an array are checked before. Of other sources, such as a `tf.data.Dataset`, the
    range of each batch is computed with the outputs, and the first batch of a `tf.data.Dataset` is
    checked before.

    Args:
        model: the model that the images are for.
        extractor: a model that takes the same images.
        images: array, `tf.data.Dataset`, or another source of batches for `keras.Model.predict`.
        batch_size: images in one step.
        verbose: as in `keras.Model.predict`.

    Returns:
        What `extractor.predict` returns.

    Raises:
        ValueError: if there are no images, they have another size than the model's, integers, or
            values beyond [-10, 10]; or `batch_size` is not a positive integer.
    """
    if batch_size is not None:
        check_integer("batch_size", batch_size, 1)
    options = {"batch_size": batch_size, "verbose": verbose}
    if images is None or isinstance(images, (list, tuple, dict, str, int, float)):
        raise ValueError(
            "`images` must be an array or a `tf.data.Dataset` of batches. "
            f"Received: images of type {type(images).__name__}"
        )
    if hasattr(images, "dtype"):
        _check_shape(model, images.shape)
        check_pixels(images, model=model)
        return extractor.predict(images, **options)
    is_scaling = scales_inputs(model)
    if hasattr(images, "element_spec"):
        _check_first_batch(model, images, is_scaling)
    found = _WithRange(extractor).predict(images, **options)
    if not is_scaling:
        range_ = float(np.min(found["low"])), float(np.max(found["high"]))
        check_range(range_)
        warn_of_range(range_)
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


def _check_first_batch(model, dataset, is_scaling):
    for batch in dataset.take(1):
        # Labels may come with the images.
        images = batch[0] if isinstance(batch, tuple) else batch
        _check_shape(model, images.shape)
        if not is_scaling:
            check_floats(images)
            check_range(value_range(images))
        return
    raise ValueError("`images` must have at least one batch. Received: an empty dataset")


def _check_shape(model, shape):
    expected, shape = tuple(model.inputs[0].shape)[1:], tuple(shape)
    is_right = len(shape) == len(expected) + 1 and shape[0] != 0
    if not is_right or any(
        size not in (None, found) for size, found in zip(expected, shape[1:], strict=True)
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in expected)
        raise ValueError(
            f"`images` must have the shape (batch, {sizes}), with at least one image. "
            f"Received: images of shape {shape}"
        )
