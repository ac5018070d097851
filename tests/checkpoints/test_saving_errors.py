"""Models and places that are refused; what was there stays."""

import keras
import pytest

import keras_vit
from keras_vit.checkpoints import save_checkpoint
from tests.fixtures.checkpoint_files import random_model
from tests.fixtures.reference import case_model


@pytest.mark.parametrize("format", ["google", "timm"])
def test_a_failure_leaves_the_old_file(format, tmp_path, monkeypatch):
    path = tmp_path / ("file.npz" if format == "google" else "file.safetensors")
    path.write_text("old")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("numpy.savez", fail)
    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="could not be written: disk full"):
        save_checkpoint(case_model("timm_token"), path, format)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "format"),
    [("file.npz", "timm"), ("file", "google"), ("file.safetensors", "big_vision")],
)
def test_a_path_of_another_format_is_refused(name, format, tmp_path):
    with pytest.raises(ValueError, match="`path` must be a"):
        save_checkpoint(case_model("a_vit_token"), tmp_path / name, format)


def customised():
    """Models that the builders do not make, though their layers have the names."""
    vit = random_model({})
    blocks = [vit.get_layer(name) for name in ("block_0", "block_1")]
    tokens = keras.Model(vit.input, vit.get_layer("dropout").output)
    rest = ("encoder_norm", "pooling", "head")

    def composed(*layers):
        x = tokens.output
        for layer in (*layers, *(vit.get_layer(name) for name in rest)):
            x = layer(x)
        return keras.Model(vit.input, x)

    yield keras.Model(vit.input, keras.layers.Softmax()(vit.output))
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(vit.input)
    yield keras.Model(vit.input, vit(scaled))
    yield composed(blocks[0], lambda x: keras.ops.multiply(x, 2), blocks[1])
    yield composed(*blocks[::-1])
    other = keras_vit.TransformerBlock(2, 16, activation="relu", name="block_1")
    yield composed(blocks[0], other)
    yield keras.Model(vit.input, [vit.output, tokens.output])
    yield keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def test_a_customised_model_is_refused(tmp_path):
    for model in customised():
        with pytest.raises(ValueError, match="`model` must .* Received: "):
            save_checkpoint(model, tmp_path / "file.npz", "google")
    assert not list(tmp_path.iterdir())


def test_weights_next_to_the_configuration_of_another_model(tmp_path):
    save_checkpoint(case_model("hf_classifier"), tmp_path, "huggingface")
    other = random_model({"epsilon": 1e-12, "activation": "gelu"})
    with pytest.raises(ValueError, match="`model` must be one that"):
        save_checkpoint(other, tmp_path / "other.safetensors", "huggingface")


def test_settings_of_images_that_would_not_be_read(tmp_path):
    """transformers 5 reads a `processor_config.json` first."""
    (tmp_path / "processor_config.json").write_text("{}")
    model = case_model("hf_classifier")
    with pytest.raises(ValueError, match="processor_config.json, which is read instead of pre"):
        save_checkpoint(model, tmp_path, "huggingface")
    assert len(list(tmp_path.iterdir())) == 1
    save_checkpoint(model, tmp_path, "timm")


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("model.safetensors", "huggingface_tf"),
        ("model.safetensors.index.json", "huggingface_tf"),
        ("tf_model.h5", "huggingface"),
        ("model.safetensors.index.json", "huggingface"),
        ("model.safetensors.index.json", "timm"),
    ],
)
def test_weights_that_would_be_read_with_the_new_configuration(name, format, tmp_path):
    (tmp_path / name).write_text("those of another model")
    with pytest.raises(ValueError, match=f"must be a directory without {name}"):
        save_checkpoint(case_model("hf_classifier"), tmp_path, format)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("name", "format"), [("a.npz", "google"), ("a.safetensors", "timm")])
def test_an_activation_that_cannot_be_recorded(name, format, tmp_path):
    """One GELU for another is logged."""
    model = random_model({"activation": "relu"})
    with pytest.raises(ValueError, match="files can describe.* activation='relu'"):
        save_checkpoint(model, tmp_path / name, format)
    assert not list(tmp_path.iterdir())
