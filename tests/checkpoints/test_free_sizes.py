"""Checkpoint files of and for models of any image size."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import resnet
from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.models import resize, vision_transformer
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.tiny import TINY, images


def free(**options):
    model = vision_transformer(**{**TINY, "image_size": (8, 24), **options})
    randomise(model)
    return resize(model, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "format"), [("m.npz", "google"), ("m.npz", "big_vision"), ("m", "timm")]
)
def test_files_have_the_stored_positions(file, format, tmp_path, caplog):
    pooling = "gap" if format == "big_vision" else "token"
    model = free(pooling=pooling, activation="gelu" if format == "timm" else "gelu_tanh")
    keras_vit.save_checkpoint(model, tmp_path / file, format)
    read = keras_vit.from_checkpoint(tmp_path / file)
    assert read.input_shape == (None, 8, 24, 3)
    np.testing.assert_array_equal(
        to_numpy(read(images(2, 8, 24, 3))), to_numpy(model(images(2, 8, 24, 3)))
    )
    again = resize(keras_vit.from_checkpoint(tmp_path / file, image_size=(16, 8)), None)
    keras_vit.load_checkpoint(model, tmp_path / file)
    assert again.input_shape == model.input_shape
    with pytest.raises(ValueError, match="for the model's grid"):
        keras_vit.load_checkpoint(free(pooling=pooling, image_size=(12, 16)), tmp_path / file)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"position_embedding": "sincos2d"}], ids=str)
def test_keras_files(options, tmp_path):
    """A `.keras` file keeps the size open; read as a checkpoint, it has the stored size."""
    model, path = free(**options), tmp_path / "m.keras"
    model.save(path)
    assert keras.models.load_model(path).input_shape == model.input_shape
    assert inspect_checkpoint(path).options.image_size == (8, 24)
    read = keras_vit.from_checkpoint(path)
    assert read.options.replace(dtype=None) == model.options.replace(image_size=(8, 24))
    np.testing.assert_array_equal(
        to_numpy(resize(read, None)(images(1, 12, 8, 3))), to_numpy(model(images(1, 12, 8, 3)))
    )
    keras_vit.load_checkpoint(model, path)
    assert keras_vit.from_checkpoint(path, image_size=16).input_shape == (None, 16, 16, 3)


def test_models_without_positions_have_the_default_size(tmp_path):
    model = free(position_embedding="none")
    model.save(tmp_path / "m.keras")
    assert inspect_checkpoint(tmp_path / "m.keras").options.image_size == (224, 224)
    bit = resnet((1,), 32, num_classes=2, image_size=None)
    keras_vit.save_checkpoint(bit, tmp_path / "bit.npz", "big_transfer")
    assert keras_vit.from_checkpoint(tmp_path / "bit.npz").input_shape == (None, 224, 224, 3)
