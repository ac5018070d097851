"""Training data for several processes and devices: count images, and make batches of one size."""

import keras
import numpy as np
import tensorflow as tf


def process():
    """Return `(index, count)`: the index of this process, and the number of JAX processes."""
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()


def sum_over_processes(number):
    """Return the sum of an integer over all processes; every process must call this function."""
    if process()[1] == 1:
        return number
    from jax.experimental.multihost_utils import process_allgather

    return int(process_allgather(np.array(number)).sum())


def count_images(dataset):
    """Return the number of images that a dataset yields; skipped images are not counted."""
    # Targets are counted, because inputs may be a dictionary.
    return sum(len(targets) for _, targets, *_ in dataset)


def pad(dataset, batch_size, num_batches, weight=1.0):
    """Pad a dataset to a number of full batches, with images of weight 0.

    Args:
        dataset: dataset of `(inputs, targets)` or `(inputs, targets, weights)`; only the last batch
            may have fewer than `batch_size` images.
        batch_size: images per batch.
        num_batches: number of batches in the result.
        weight: factor of the weights of the real images.

    Returns:
        A `tf.data.Dataset` of `(inputs, targets, weights)`.

    Example:
    >>> test = keras_vit.data.load("digits", "test", 16, batch_size=200)
    >>> [float(np.sum(weights)) for _, _, weights in pad(test, 200, 3)]
    [200.0, 159.0, 0.0]
    """

    def fill_tensor(tensor):
        padding = [[0, batch_size - tf.shape(tensor)[0]], *[[0, 0]] * (tensor.shape.rank - 1)]
        return tf.ensure_shape(tf.pad(tensor, padding), (batch_size, *tensor.shape[1:]))

    def fill(inputs, labels, weights=1.0):
        count = tf.shape(tf.nest.flatten(inputs)[0])[0]
        shape = tf.concat([[count], tf.shape(weights)[1:]], axis=0)
        weights = tf.broadcast_to(weights * tf.cast(weight, tf.float32), shape)
        are_masks = tf.is_tensor(labels) and labels.shape.rank == 3
        if are_masks and weights.shape.rank == 1:
            # Keras needs a weight per pixel of a mask.
            weights = tf.broadcast_to(weights[:, None, None], tf.shape(labels))
        return tf.nest.map_structure(fill_tensor, (inputs, labels, weights))

    def empty_like(spec):
        return tf.zeros([0, *spec.shape[1:]], spec.dtype)

    empty = tf.nest.map_structure(empty_like, dataset.element_spec)
    batches = dataset.concatenate(tf.data.Dataset.from_tensors(empty).repeat())
    batches = batches.take(num_batches).map(fill)
    return batches.apply(tf.data.experimental.assert_cardinality(num_batches))
