"""Images of `fit`, `evaluate` and `predict`: arrays, or a `tf.data.Dataset`."""

import contextlib
import sys
import warnings

from keras_vit.core.pixels import (
    MAX_NORMALIZED,
    RULE,
    check_array,
    is_warned_of_range,
    scales_inputs,
    warn_of_range,
)

_MESSAGE = f"`x` {RULE}. Received: NaN, or values beyond [{-MAX_NORMALIZED}, {MAX_NORMALIZED}]"


@contextlib.contextmanager
def checked(model, images):
    """Yield the images: a checked array, or a dataset that checks its first batch when it is read.

    Anything else, such as a generator, is yielded as it is; the model checks its first eager call.

    Raises:
        ValueError: as `check_array`.
    """
    # `fit` calls `evaluate`.
    was_in_loop, model._is_in_loop = model._is_in_loop, True
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
    try:
        yield _checking(images, tensorflow, is_warned or is_warned_of_range())
    except tensorflow.errors.InvalidArgumentError as error:
        if _MESSAGE in str(error):
            raise ValueError(_MESSAGE) from None
        raise


def _checking(dataset, tf, is_warned):
    """Return the same dataset, with its first image checked when it is read.

    Unless `is_warned`, one warning is logged if the first batch is scaled wrongly.
    """
    warned = [is_warned]
    spec = tf.nest.flatten(dataset.element_spec)[0]
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating):
        # The model refuses integers.
        return dataset

    def warn(low, high):
        if not warned[0]:
            warn_of_range((float(low), float(high)))
        warned[0] = True

    def warn_of(images):
        bounds = [tf.cast(f(images), "float32") for f in (tf.reduce_min, tf.reduce_max)]
        tf.numpy_function(warn, bounds, [])
        return True

    def check(number, element):
        images = tf.nest.flatten(element)[0]
        first = tf.abs(images[:1])
        is_right = tf.reduce_all(first <= tf.cast(MAX_NORMALIZED, first.dtype))
        if not is_warned:
            tf.cond(number == 0, lambda: warn_of(images), lambda: True)
        # Later images may have outliers.
        tf.debugging.Assert((number > 0) | is_right, [_MESSAGE])
        return element

    return dataset.enumerate().map(check)
