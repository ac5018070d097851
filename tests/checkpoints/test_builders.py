"""Builders with `weights`."""

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
def test_a_head_of_as_many_classes_is_kept(tiny_file):
    model, path = tiny_file
    loaded = keras_vit.ViT_Ti16(weights=str(path), num_classes=5, image_size=32)
    assert unchanged(loaded, model.get_weights())
    # `from_checkpoint` always replaces the head if the number of classes is given.
    loaded = keras_vit.from_checkpoint(path, num_classes=5)
    assert not ops.convert_to_numpy(loaded.get_layer("head").kernel.value).any()


def test_another_number_of_classes_has_a_head_of_zeros(tiny_file):
    _, path = tiny_file
    loaded = keras_vit.ViT_Ti16(weights=path, num_classes=3, image_size=(48, 32))
    assert (loaded.input_shape, loaded.output_shape) == ((None, 48, 32, 3), (None, 3))
    assert not any(layer.name == "pre_logits" for layer in loaded.layers)
    assert not ops.convert_to_numpy(loaded.get_layer("head").kernel.value).any()


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


@pytest.mark.parametrize("option", [{"pooling": "gap"}, {"qkv_bias": False}], ids=str)
def test_an_option_that_the_file_contradicts_is_refused(tiny_file, option):
    _, path = tiny_file
    with pytest.raises(ValueError, match="must be that of the file"):
        keras_vit.from_checkpoint(path, **option)
    with pytest.raises(ValueError, match="must be that of the file"):
        keras_vit.ViT_Ti16(weights=path, **option)


def test_weights_of_another_variant_are_refused(tiny_file):
    _, path = tiny_file
    with pytest.raises(ValueError, match="`weights` must be those of ViT_S16.*embedding_dim=192"):
        keras_vit.ViT_S16(weights=path)
