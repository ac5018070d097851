"""Models and places that are refused; what was there stays."""

import keras
import pytest

import keras_vit
from keras_vit.checkpoints import save_checkpoint, to_keras_hub
from keras_vit.checkpoints.formats import written_formats
from tests.fixtures.checkpoint_files import random_model
from tests.fixtures.models import ABLATIONS, TOWERS
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
    ("name", "format", "message"),
    [
        ("file.npz", "numpy", "`format` must be one of .*format='numpy'"),
        ("file.npz", "timm", "`path` must be a directory or a .safetensors file"),
        ("file", "google", "`path` must be a .npz file for format='google'"),
        ("file.safetensors", "big_vision", "`path` must be a .npz file"),
    ],
)
def test_wrong_argument(name, format, message, tmp_path):
    with pytest.raises(ValueError, match=message):
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


def test_a_customised_model_is_refused(tmp_path):
    for model in customised():
        with pytest.raises(ValueError, match="`model` must .* Received: "):
            save_checkpoint(model, tmp_path / "file.npz", "google")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", ABLATIONS.values(), ids=str)
def test_ablations_are_in_no_other_file(options, tmp_path):
    """Also where a file would have the same arrays as without them."""
    model = random_model(options)
    (name, *_) = set(options) - {"pooling", "num_registers"}
    for format, row in written_formats().items():
        path = tmp_path / (format if row.config_files else f"{format}{row.suffix}")
        with pytest.raises(ValueError, match=f"files can describe.* with .*{name}="):
            save_checkpoint(model, path, format)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=f"files can describe.* with .*{name}="):
        to_keras_hub(model)


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
    with pytest.raises(ValueError, match=f"{format} files can describe.* activation='relu'"):
        save_checkpoint(model, tmp_path / name, format)
    assert not list(tmp_path.iterdir())


def test_the_error_is_that_of_the_layout_of_the_model(tmp_path):
    model = random_model({**TOWERS["dinov3"], "num_classes": 0})
    save_checkpoint(model, tmp_path / "backbone", "huggingface")
    model = keras_vit.from_checkpoint(tmp_path / "backbone", num_classes=4)
    with pytest.raises(ValueError, match="huggingface_dinov3_vit files .* with head/kernel"):
        save_checkpoint(model, tmp_path / "classifier", "huggingface")


@pytest.mark.parametrize(
    "model",
    [None, keras_vit.ViT_Ti16, keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])],
)
def test_another_kind_of_model(model, tmp_path):
    with pytest.raises(ValueError, match="`model` must be one of the builders"):
        save_checkpoint(model, tmp_path / "file.npz", "google")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "taken" / "config.json").mkdir(parents=True)
    (tmp_path / "directory.npz").mkdir()
    model = case_model("timm_token")
    for path, format in (
        (tmp_path / "file.txt" / "x.npz", "google"),
        (tmp_path / "file.txt", "timm"),
        (tmp_path / "directory.npz", "google"),
        (tmp_path / "taken", "timm"),
        (tmp_path / "model.keras", "timm"),
        (None, "google"),
        (b"x.npz", "google"),
    ):
        with pytest.raises((OSError, TypeError, ValueError)):
            save_checkpoint(model, path, format)
    left = sorted(path.name for path in tmp_path.rglob("*"))
    assert left == ["config.json", "directory.npz", "file.txt", "taken"]


def test_refusals_do_not_name_formats_that_refuse_too(tmp_path):
    """timm's weights of DINOv3 alone do not record the pooling, and transformers has no head."""
    model = random_model({**TOWERS["dinov3"], "pooling": "token", "num_classes": 3})
    for path, other in ((tmp_path / "a.safetensors", "huggingface"), (tmp_path / "b", "timm")):
        format = "timm" if other == "huggingface" else "huggingface"
        with pytest.raises(ValueError, match="`model` must ") as error:
            save_checkpoint(model, path, format)
        assert other not in str(error.value)
