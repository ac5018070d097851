"""The update from the parts of a batch is that of the whole batch, for each loss of the recipes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.core.arguments import IGNORED
from keras_vit.data.corruption import mask_patches
from keras_vit.training.losses import PixelCrossEntropy, make_loss, masked_patch_loss
from keras_vit.training.optimizers import SGD
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_recipe
from tests.fixtures.tiny import images


def one_class():
    labels = np.arange(4) % 3
    return make_loss(small_recipe()), labels, np.ones(4)


def multi_label():
    labels = np.eye(3)[[0, 1, 2, 0]]
    return make_loss(small_recipe(loss="sigmoid")), labels, np.ones(4)


def pixels():
    """Most pixels of the second half have no class."""
    masks = np.arange(4 * 6).reshape(4, 2, 3) % 3
    masks[2:].flat[1:] = IGNORED
    return PixelCrossEntropy([1.0, 2.0, 0.5]), masks, np.ones((4, 2, 3))


def patches():
    pictures = tf.data.Dataset.from_tensors((images(4, 8, 8, 3), np.zeros(4)))
    ((_, targets, weights),) = mask_patches(pictures, 4).as_numpy_iterator()
    return masked_patch_loss(), targets % 3, weights


def kernel_after(num_parts, loss, labels, weights):
    """Return a kernel after one update from the parts of a batch of four images."""
    outputs = keras.layers.Dense(3, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((*weights.shape[1:], 5)), outputs])
    model.compile(SGD(1.0, accumulation_steps=num_parts), loss, run_eagerly=True)
    batch = images(4, *model.input_shape[1:]), labels, weights
    for part in zip(*(np.split(array, num_parts) for array in batch), strict=True):
        model.train_on_batch(*part)
    return to_numpy(outputs.kernel.value)


@pytest.mark.parametrize("task", [one_class, multi_label, pixels, patches])
def test_parts_of_a_batch(task):
    whole = kernel_after(1, *task())
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(kernel_after(2, *task()), whole, atol=1e-6)
