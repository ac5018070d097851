"""Images of `fit`, `evaluate` and `predict`: arrays, or a `tf.data.Dataset`."""

import contextlib
import sys

from keras_vit.core.pixels import MAX_NORMALIZED, RULE, check_array, scales_inputs

_MESSAGE = f"`x` {RULE}. Received: NaN, or values beyond [{-MAX_NORMALIZED}, {MAX_NORMALIZED}]"


@contextlib.contextmanager
def checked(model, images):
    """Yield the images: a checked array, or a dataset that checks its first image when it is read.

    Anything else, such as a generator, is yielded as it is; the model checks its first eager call.

    Raises:
        ValueError: as `check_array`.
    """
    # `fit` calls `evaluate`.
    was_in_loop, model._is_in_loop = model._is_in_loop, True
    try:
        with _checked_source(model, images) as found:
            yield found
    finally:
        model._is_in_loop = was_in_loop


@contextlib.contextmanager
def _checked_source(model, images):
    # Where there is a dataset, TensorFlow is imported.
    tensorflow = sys.modules.get("tensorflow")
    if not tensorflow or not isinstance(images, tensorflow.data.Dataset):
        check_array(model, images)
        yield images
        return
    # Those of `keras_vit.data.load` are scaled.
    is_scaled = hasattr(images, "num_examples")
    if len(model.inputs) != 1 or scales_inputs(model) or is_scaled:
        yield images
        return
    try:
        yield _checking(images, tensorflow)
    except tensorflow.errors.InvalidArgumentError as error:
        if _MESSAGE in str(error):
            raise ValueError(_MESSAGE) from None
        raise


def _checking(dataset, tf):
    """Return the same dataset, which checks the values of its first image."""
    spec = tf.nest.flatten(dataset.element_spec)[0]
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating):
        # The model refuses integers.
        return dataset

    def check(number, element):
        first = tf.abs(tf.nest.flatten(element)[0][:1])
        is_right = tf.reduce_all(first <= tf.cast(MAX_NORMALIZED, first.dtype))
        # Later images may have outliers.
        tf.debugging.Assert((number > 0) | is_right, [_MESSAGE])
        return element

    return dataset.enumerate().map(check)
