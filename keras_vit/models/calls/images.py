"""Images of `fit`, `evaluate` and `predict`: arrays, or a `tf.data.Dataset`."""

import contextlib
import logging
import sys
import warnings

import numpy as np

from keras_vit.core.pixels import (
    RULE,
    check_array,
    is_in_range,
    is_warned_of_range,
    range_error,
    scales_inputs,
    warn_of_range,
)

# By which the failure of our assertion is recognized.
_MARKER = f"`x` {RULE}"


def _warn_of_order(dataset):
    """Log a warning if `fit` would train on a dataset of `keras_vit.data.load` in its order."""
    if not getattr(getattr(dataset, "info", None), "training", True):
        logging.getLogger("keras_vit").warning(
            "the training images are not shuffled and may be sorted by class: give "
            "`keras_vit.data.load` the argument `training=True`"
        )


@contextlib.contextmanager
def checked(model, images, in_training=False):
    """Yield the images: a checked array, or a dataset that checks its first batch when it is read.

    Anything else, such as a generator, is yielded as it is; the model checks its first eager call.
    With `in_training`, a warning is logged if a dataset is known not to be shuffled.

    Raises:
        ValueError: as `check_array`.
    """
    # `fit` calls `evaluate`.
    was_in_loop, model._is_in_loop = model._is_in_loop, True
    if in_training:
        _warn_of_order(images)
    try:
        # Each epoch of `fit` would warn again of the validation images.
        with _checked_source(model, images, is_warned=was_in_loop) as found:
            yield found
    finally:
        model._is_in_loop = was_in_loop


@contextlib.contextmanager
def _checked_source(model, images, is_warned):
    # Where there is a dataset, TensorFlow is imported.
    tensorflow = sys.modules.get("tensorflow")
    if not tensorflow or not isinstance(images, tensorflow.data.Dataset):
        check_array(model, images)
        yield images
        return
    # Those of `keras_vit.data.load` are scaled.
    if hasattr(images, "num_examples"):
        with warnings.catch_warnings():
            # Keras counts batches of images that cannot be decoded, too.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            yield images
        return
    if len(model.inputs) != 1 or scales_inputs(model):
        yield images
        return
    bounds = []
    try:
        yield _checking(images, tensorflow, is_warned or is_warned_of_range(), bounds)
    except tensorflow.errors.InvalidArgumentError as error:
        if _MARKER in str(error):
            raise range_error(bounds, "x") from None
        raise


def _checking(dataset, tf, is_warned, bounds):
    """Return the same dataset, with its first image checked when it is read.

    The range of its values, or of a first image that fails in a later epoch, is put into `bounds`,
    an empty list. Unless `is_warned`, one warning is logged if the first batch is scaled wrongly.
    """
    spec = tf.nest.flatten(dataset.element_spec)[0]
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating):
        # The model refuses integers.
        return dataset

    def note_range(*values):
        of_first, of_batch = values[:2], values[2:]
        is_right, is_new = is_in_range(of_first), not bounds
        if is_new or not is_right:
            bounds[:] = map(float, of_first)
        # Once, not in each epoch.
        if is_new and is_right and not is_warned:
            warn_of_range([*map(float, of_batch)])
        return np.bool_(is_right)

    def is_first_scaled(images):
        parts = images[:1], images
        values = [f(part) for part in parts for f in (tf.reduce_min, tf.reduce_max)]
        return tf.numpy_function(
            note_range, [tf.cast(value, "float32") for value in values], tf.bool
        )

    def check(number, element):
        images = tf.nest.flatten(element)[0]
        # Later images may have outliers.
        is_right = tf.cond(number == 0, lambda: is_first_scaled(images), lambda: True)
        tf.debugging.Assert(is_right, [_MARKER])
        return element

    return dataset.enumerate().map(check)
