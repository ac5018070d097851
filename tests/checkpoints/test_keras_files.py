"""Keras's own files: `.keras` and `.weights.h5`."""

import h5py
import numpy as np
import pytest

from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from keras_vit.models import resize, vision_transformer
from keras_vit.models.options import POSITION_EMBEDDINGS
from keras_vit.models.vit import build_model
from tests.fixtures.checkpoint_files import random_model, saved, unchanged
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import ABLATIONS
from tests.fixtures.tiny import TINY, images


@pytest.mark.slow
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_weights_of_a_file(suffix, is_trained, tmp_path):
    """Training with dropout leaves an optimizer and random seeds in the file."""
    model = vision_transformer(**TINY, dropout=0.1 if is_trained else 0.0)
    if is_trained:
        model.compile("adam", "mse")
        model.fit(images(2, 16, 16, 3), np.ones((2, 3)), verbose=0)
    loaded = vision_transformer(**TINY)
    load_checkpoint(loaded, saved(model, tmp_path / f"model{suffix}"))
    for old, new in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(old.value), to_numpy(new.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [*({"position_embedding": kind} for kind in POSITION_EMBEDDINGS), *ABLATIONS.values()],
    ids=str,
)
def test_a_model_is_read_as_it_was_and_in_another_size(options, tmp_path):
    """Also positions that no other project has, which are resized as by `resize`."""
    model = random_model(options)
    model.get_layer("block_0").trainable = False
    path = saved(model, tmp_path / "model.keras")
    assert unchanged(from_checkpoint(path), model.get_weights())
    for image_size in (16, (8, 24)):
        loaded, expected = from_checkpoint(path, image_size=image_size), resize(model, image_size)
        assert loaded.options.replace(dtype=None) == expected.options
        assert not loaded.get_layer("block_0").trainable
        batch = images(2, *loaded.input_shape[1:])
        np.testing.assert_allclose(to_numpy(loaded(batch)), to_numpy(expected(batch)), atol=1e-6)
    assert from_checkpoint(path, num_classes=5, image_size=32).output_shape == (None, 5)
    load_checkpoint(build_model(model.options), path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_dim": 16},
        {"depth": 1},
        {"num_classes": 4},
        # Its `pre_logits` kernel has the shape of our head's.
        {"representation_size": 3},
        {"pooling": "gap"},
        {"dropout": 0.1, "depth": 3},
    ],
    ids=str,
)
def test_weights_of_another_model(suffix, changes, tmp_path):
    path = saved(vision_transformer(**{**TINY, **changes}), tmp_path / f"other{suffix}")
    model = vision_transformer(**TINY)
    before = model.get_weights()
    with pytest.raises(ValueError, match="`path` must (be a Keras file of|hold exactly)"):
        load_checkpoint(model, path)
    assert unchanged(model, before)


@pytest.mark.parametrize(
    "changes", [{"pooling": "gap", "fc_norm": True}, {"pooling": "gap", "class_token": True}]
)
def test_arrays_of_the_same_shapes_in_other_layers(changes, tmp_path):
    plain = {"pooling": "token" if "class_token" in changes else "gap"}
    path = tmp_path / "plain.weights.h5"
    vision_transformer(**{**TINY, **plain}).save_weights(path)
    with pytest.raises(ValueError, match="of this very model.*only the file or the model has"):
        load_checkpoint(vision_transformer(**{**TINY, **changes}), path)


@pytest.mark.parametrize(
    ("option", "file", "model"),
    [
        ("classifier_activation", None, "softmax"),
        ("position_embedding", "sincos2d", "none"),
        ("position_placement", "stem", "every_layer_shared"),
        ("unit_norm", True, False),
    ],
)
def test_another_value_of_an_option_is_reported(option, file, model, tmp_path, caplog):
    vision_transformer(**TINY, **{option: file}).save(tmp_path / "model.keras")
    load_checkpoint(vision_transformer(**TINY, **{option: model}), tmp_path / "model.keras")
    assert f"the model has {option}={model!r}, the file {file!r}" in caplog.text


@pytest.mark.parametrize(
    "place", ["extra", "layers/dense_7", "layers/transformer_block/more", "optimizers"]
)
def test_arrays_that_would_not_be_loaded_are_refused(place, tmp_path):
    model = vision_transformer(**TINY)
    path = saved(model, tmp_path / "model.weights.h5")
    with h5py.File(path, "a") as file:
        file[f"{place}/vars/0"] = np.ones(3)
    with pytest.raises(ValueError, match="41 arrays, the model 40 .* unused arrays in"):
        load_checkpoint(model, path)


def test_a_grid_that_weights_do_not_record_is_assumed_with_a_warning(tmp_path, caplog):
    path = tmp_path / "model.weights.h5"
    for size, warns in (((16, 16), False), ((8, 32), True)):
        model = vision_transformer(**{**TINY, "image_size": size})
        model.save_weights(path)
        load_checkpoint(model, path)
        assert ("it is assumed to be the model's, (2, 8)" in caplog.text) == warns


def test_a_keras_file_keeps_its_dtype_policy(tmp_path):
    path = saved(random_model({"dtype": "mixed_bfloat16"}), tmp_path / "model.keras")
    block = from_checkpoint(path).get_layer("block_0")
    assert block.dtype_policy.name == "mixed_bfloat16"
