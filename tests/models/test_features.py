"""Features of images."""

import keras
import numpy as np
import pytest

from keras_vit.models import vision_transformer
from keras_vit.models.features import feature_extractor, features
from tests.fixtures.tiny import TINY, images


@pytest.mark.slow
def test_features():
    model = vision_transformer(**TINY, representation_size=6, dtype="mixed_bfloat16")
    batch = images(3, 16, 16, 3)
    assert features(model, batch, batch_size=2).shape == (3, 6)
    outputs = features(model, batch, ["patch_embedding", "block_1"])
    assert outputs["patch_embedding"].shape == (3, 16, 8)
    assert outputs["block_1"].shape == (3, 17, 8)
    assert outputs["block_1"].dtype == "float32"
    maps = features(model, batch, ["block_1"], as_maps=True)["block_1"]
    np.testing.assert_array_equal(maps.reshape(3, 16, 8), outputs["block_1"][:, 1:])


class Batches(keras.utils.PyDataset):
    """Batches of two."""

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays[0]) // 2

    def __getitem__(self, index):
        return tuple(array[2 * index : 2 * index + 2] for array in self.arrays)


def dataset(arrays):
    import tensorflow as tf

    arrays = arrays if len(arrays) > 1 else arrays[0]
    return tf.data.Dataset.from_tensor_slices(arrays).batch(2)


@pytest.mark.slow
@pytest.mark.parametrize("make", [dataset, Batches])
@pytest.mark.parametrize("has_labels", [False, True])
def test_labels_of_a_dataset_are_left_out(make, has_labels):
    model, batch = vision_transformer(**TINY), images(4, 16, 16, 3)
    found = features(model, make((batch, np.zeros(4)) if has_labels else (batch,)))
    np.testing.assert_allclose(found, features(model, batch), rtol=0, atol=1e-6)


def test_maps_are_of_layers_with_patches():
    with pytest.raises(ValueError, match="`as_maps` needs layers .*'pooling'"):
        features(vision_transformer(**TINY), images(1, 16, 16, 3), ["pooling"], as_maps=True)


@pytest.mark.backends("tensorflow", "jax", "torch")
@pytest.mark.parametrize(
    ("options", "pool"),
    [
        ({"num_registers": 2}, lambda tokens: tokens[:, 0]),
        ({"num_registers": 2, "pooling": "gap"}, lambda tokens: tokens[:, 2:].mean(axis=1)),
    ],
    ids=["class token", "mean of the patches"],
)
def test_features_of_several_layers(options, pool):
    model, batch = vision_transformer(**{**TINY, **options}), images(3, 16, 16, 3)
    names = ["block_0", "encoder_norm"]
    tokens = features(model, batch, names)
    found = feature_extractor(model, names).predict(batch, verbose=0)
    expected = np.concatenate([pool(tokens[name]) for name in names], axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_the_first_patch_is_no_class_token():
    with pytest.raises(ValueError, match="`layers` must be one of .*'block_0'.*'patch_embedding'"):
        feature_extractor(vision_transformer(**TINY), ["patch_embedding"])
