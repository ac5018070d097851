"""Losses and metrics, and the update from the parts of a batch, which is that of the whole."""

import keras
import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from scipy.special import log_softmax

from keras_vit.core.arguments import IGNORED
from keras_vit.data.corruption import mask_patches
from keras_vit.training.losses import (
    BalancedAccuracy,
    PixelCrossEntropy,
    make_loss,
    masked_patch_loss,
    sigmoid_cross_entropy,
)
from keras_vit.training.optimizers import SGD
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_recipe
from tests.fixtures.tiny import images


def test_sigmoid_loss_is_optaxs_sum():
    optax = pytest.importorskip("optax", reason="optax is installed with JAX")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 7), scale=20).astype("float32")
    labels = rng.dirichlet(np.ones(7), size=5).astype("float32")
    expected = np.asarray(optax.sigmoid_binary_cross_entropy(logits, labels)).sum(axis=1)
    np.testing.assert_allclose(to_numpy(sigmoid_cross_entropy(labels, logits)), expected, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_loss_is_scipys(smoothing):
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 7, 5), rng.normal(size=(5, 7)).astype("float32")
    shares = np.eye(7)[labels] * (1 - smoothing) + smoothing / 7
    expected = -(shares * log_softmax(logits, axis=1)).sum(axis=1).mean()
    recipe = small_recipe(label_smoothing=smoothing)
    given = np.eye(7, dtype="float32")[labels] if recipe.needs_soft_labels else labels
    loss = make_loss(recipe, is_sparse=not smoothing)
    assert float(loss(given, logits)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5)])
def test_segmentation_loss_is_the_mean_of_weighted_pixels(weights):
    rng = np.random.default_rng(0)
    masks, logits = rng.integers(0, 3, (2, 4, 5)), rng.normal(size=(2, 4, 5, 3))
    losses = -np.take_along_axis(log_softmax(logits, axis=-1), masks[..., None], -1)[..., 0]
    losses *= np.array(weights or (1, 1, 1))[masks]
    losses[0, 0] = 0
    masks[0, 0] = IGNORED
    loss = PixelCrossEntropy(weights)(masks, logits.astype("float32"))
    assert float(loss) == pytest.approx(losses.mean(), rel=1e-5)


def test_masks_without_classes_have_no_loss():
    masks, logits = np.full((1, 2, 2), IGNORED), np.ones((1, 2, 2, 3), "float32")
    assert float(PixelCrossEntropy()(masks, logits)) == 0


def test_loss_of_masked_patches_is_the_mean_over_corrupted_ones():
    rng = np.random.default_rng(0)
    weights = rng.permuted([[8, 8] + [0] * 14] * 4, axis=1).astype("float32")
    classes, logits = rng.integers(0, 512, (4, 16)), rng.normal(size=(4, 16, 512))
    entropies = -np.take_along_axis(log_softmax(logits, axis=-1), classes[..., None], axis=-1)
    loss = masked_patch_loss("mean_color")(classes, logits, sample_weight=weights)
    np.testing.assert_allclose(to_numpy(loss), entropies[weights > 0].mean(), rtol=1e-5)
    cells = masked_patch_loss("downsized")(
        classes[..., None].repeat(16, -1),
        logits[:, :, None].repeat(16, 2),
        sample_weight=weights[..., None].repeat(16, -1),
    )
    np.testing.assert_allclose(to_numpy(cells), to_numpy(loss), rtol=1e-5)
    pixels, predicted = rng.normal(size=(2, 4, 16, 48))
    errors = ((pixels - predicted) ** 2).mean(axis=-1)
    loss = masked_patch_loss("pixels")(pixels, predicted, sample_weight=weights)
    np.testing.assert_allclose(to_numpy(loss), errors[weights > 0].mean(), rtol=1e-5)


@pytest.mark.parametrize("are_soft", [False, True])
def test_balanced_accuracy_is_scikit_learns(are_soft):
    rng = np.random.default_rng(0)
    # Class 3 has no image.
    labels, logits = rng.choice(3, size=50, p=[0.7, 0.2, 0.1]), rng.normal(size=(50, 4))
    metric = BalancedAccuracy(num_classes=4)
    for part in (slice(0, 20), slice(20, 50)):
        given = np.eye(4)[labels[part]] if are_soft else labels[part]
        metric.update_state(given, logits[part].astype("float32"))
    predicted = logits.argmax(axis=1)
    recalls = sklearn.metrics.recall_score(labels, predicted, average=None, labels=[0, 1, 2])
    assert float(metric.result()) == pytest.approx(recalls.mean(), abs=1e-6)


def test_images_of_weight_0_do_not_count_in_the_balanced_accuracy():
    metric = BalancedAccuracy(num_classes=2)
    metric.update_state([0, 1], [[1.0, 0.0], [1.0, 0.0]], sample_weight=[1.0, 0.0])
    assert float(metric.result()) == 1.0


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
def test_the_update_from_parts_is_that_of_the_batch(task):
    whole = kernel_after(1, *task())
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(kernel_after(2, *task()), whole, atol=1e-6)
