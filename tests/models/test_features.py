"""Features of images."""

import keras
import numpy as np
import pytest

from keras_vit.models import vision_transformer
from keras_vit.models.features import features
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


@pytest.mark.slow
@pytest.mark.parametrize("has_labels", [False, True])
def test_labels_of_a_dataset_are_left_out(has_labels):
    import tensorflow as tf

    model, batch = vision_transformer(**TINY), images(4, 16, 16, 3)
    arrays = (batch, np.zeros(4)) if has_labels else batch
    found = features(model, tf.data.Dataset.from_tensor_slices(arrays).batch(2))
    np.testing.assert_allclose(found, features(model, batch), rtol=0, atol=1e-6)


class Batches(keras.utils.PyDataset):
    """The batches of a list."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return (self.batches[index],)


@pytest.mark.slow
def test_batches_of_keras():
    model, batch = vision_transformer(**TINY), images(4, 16, 16, 3)
    found = features(model, Batches([batch[:2], batch[2:]]))
    np.testing.assert_allclose(found, features(model, batch), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ["block_9"]}, "No such layer: block_9"),
        ({"layers": ["pooling"], "as_maps": True}, "`as_maps` needs layers .*'pooling'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        features(vision_transformer(**TINY), images(1, 16, 16, 3), **options)
