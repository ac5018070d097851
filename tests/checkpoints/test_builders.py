"""Builders with `weights`."""

import logging

import keras
import pytest
from keras import ops

import keras_vit
from tests.fixtures.checkpoint_files import saved, unchanged
from tests.fixtures.contract import randomise

ARCHITECTURE = {"image_size": 32, "num_classes": 5}


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    """A ViT-Ti/16 in Google's layout."""
    model = keras_vit.ViT_Ti16(**ARCHITECTURE, representation_size=7)
    randomise(model)
    path = tmp_path_factory.mktemp("weights") / "tiny.npz"
    keras_vit.save_checkpoint(model, path, "google")
    return model, path


@pytest.mark.slow
def test_the_weights_tell_classes_and_size(tiny_file):
    model, path = tiny_file
    loaded = keras_vit.ViT_Ti16(weights=path)
    assert loaded.name == "ViT_Ti16"
    assert loaded.input_shape == (None, 32, 32, 3)
    assert unchanged(loaded, model.get_weights())


@pytest.mark.slow
def test_a_head_of_as_many_classes_is_kept(tiny_file, caplog):
    model, path = tiny_file
    with caplog.at_level(logging.INFO):
        loaded = keras_vit.ViT_Ti16(weights=str(path), num_classes=5, image_size=32)
    assert unchanged(loaded, model.get_weights())
    assert not caplog.messages
    # `from_checkpoint` always replaces the head if the number of classes is given.
    loaded = keras_vit.from_checkpoint(path, num_classes=5)
    assert not ops.convert_to_numpy(loaded.get_layer("head").kernel.value).any()


def test_another_head_and_size_are_said_in_one_line_each(tiny_file, caplog):
    _, path = tiny_file
    with caplog.at_level(logging.INFO):
        loaded = keras_vit.ViT_Ti16(weights=path, num_classes=3, image_size=(48, 32))
    assert loaded.output_shape == (None, 3)
    assert not any(layer.name == "pre_logits" for layer in loaded.layers)
    assert not ops.convert_to_numpy(loaded.get_layer("head").kernel.value).any()
    assert caplog.messages == [
        f"{path}: its head is replaced by one of zeros, with 3 classes",
        f"{path}: the model is resized from images of (32, 32) to (48, 32) pixels",
    ]


@pytest.mark.slow
def test_training_options_are_the_callers(tiny_file):
    _, path = tiny_file
    model = keras_vit.ViT_Ti16(weights=path, dropout=0.1, dtype="mixed_bfloat16", name="mine")
    block = model.get_layer("block_3")
    assert (model.name, block.dropout, block.compute_dtype) == ("mine", 0.1, "bfloat16")
    model = keras_vit.from_checkpoint(path, stochastic_depth=0.2)
    assert model.get_layer("block_11").stochastic_depth == 0.2


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_files_of_keras(tiny_file, suffix, tmp_path):
    model, _ = tiny_file
    path = saved(model, tmp_path / f"model{suffix}")
    options = {} if suffix == ".keras" else {**ARCHITECTURE, "representation_size": 7}
    loaded = keras_vit.ViT_Ti16(weights=path, **options)
    assert unchanged(loaded, model.get_weights())


@pytest.mark.slow
def test_configurations_record_the_gelu_and_the_epsilon(tiny_file, tmp_path):
    model = keras_vit.ViT_Ti16(**ARCHITECTURE, activation="gelu", epsilon=1e-12)
    keras_vit.save_checkpoint(model, tmp_path, "huggingface")
    block = keras_vit.ViT_Ti16(weights=tmp_path).get_layer("block_0")
    assert (block.activation, block.epsilon) == ("gelu", 1e-12)


@pytest.mark.slow
def test_a_published_file_brings_its_gelu(tiny_file, tmp_path):
    """DeiT III was trained in PyTorch; the name of its file shows it, the file does not."""
    _, tiny = tiny_file
    small = tmp_path / "small.npz"
    model = keras_vit.ViT_S16(num_classes=1, image_size=32)
    keras_vit.save_checkpoint(model, small, "big_vision")
    name = "bv_deit_3_small_224_1k.npz"
    assert any(row.url.endswith(name) for row in keras_vit.list_checkpoints("deit3"))
    # A name of the catalog counts only for its own architecture.
    for path, activation in ((small, "gelu"), (tiny, "gelu_tanh")):
        published = tmp_path / name
        published.write_bytes(path.read_bytes())
        assert keras_vit.from_checkpoint(published).get_layer("block_0").activation == activation
        assert keras_vit.from_checkpoint(path).get_layer("block_0").activation == "gelu_tanh"


def test_what_the_file_tells_is_not_the_callers(tiny_file):
    _, path = tiny_file
    for option in ({"pooling": "gap"}, {"qkv_bias": False}, {"embedding_dim": 64}):
        with pytest.raises(ValueError, match="must be that of the file, .*, or not be given"):
            keras_vit.from_checkpoint(path, **option)
    with pytest.raises(ValueError, match="`representation_size` must be that of the file, None"):
        keras_vit.from_checkpoint(path, num_classes=3, representation_size=8)


def test_inspecting_leaves_the_settings_of_keras(tiny_file):
    _, path = tiny_file
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        keras_vit.checkpoints.inspect_checkpoint(path)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy(before)


def test_weights_of_another_model(tiny_file):
    _, path = tiny_file
    message = "`weights` must be those of ViT_S16.*embedding_dim=192 instead of 384"
    with pytest.raises(ValueError, match=message):
        keras_vit.ViT_S16(weights=path)
    with pytest.raises(ValueError, match="`pooling` must be that of the file, 'token', or not"):
        keras_vit.ViT_Ti16(weights=path, pooling="map")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("imagenet22k", "`weights` must be .* a checkpoint of ViT_B16 in `list_checkpoints"),
        ("ViT_L16/imagenet21k", "`weights` must be .* a checkpoint of ViT_B16"),
        (
            "B_16-i21k-300ep-lr_0.001-aug_huge-wd_0.03-do_0.0-sd_0.0",
            "that of an AugReg file",
        ),
        ("missing.npz", "must be an existing file"),
    ],
)
def test_no_such_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.ViT_B16(weights=weights)
