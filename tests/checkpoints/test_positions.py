"""Position embeddings of files: other grids, fixed sines and cosines, models of any size."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.checkpoints import (
    from_checkpoint,
    inspect_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from keras_vit.layers.positions import sincos_table
from keras_vit.models import resize
from tests.fixtures.checkpoint_files import case_arrays, random_model, unchanged, write
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import assert_logits, case_model, case_outputs, case_path
from tests.fixtures.tiny import images


def sincos_file(tmp_path):
    arrays, name = case_arrays("i1_bv_gap_learn"), "params/pos_embedding"
    table = sincos_table((4, 4), 48).astype("float32")
    learned = write(tmp_path / "learned.npz", {**arrays, name: table})
    del arrays[name]
    return learned, write(tmp_path / "sincos.npz", arrays)


def test_sincos_positions_are_those_of_a_learned_table(tmp_path, caplog):
    learned, fixed = sincos_file(tmp_path)
    images = case_outputs("i1_bv_gap_learn")["images"]
    model = from_checkpoint(fixed, image_size=32)
    assert not any("position" in variable.path for variable in model.weights)
    assert "the fixed sines and cosines are assumed" in caplog.text
    expected = ops.convert_to_numpy(from_checkpoint(learned)(images))
    assert_logits(ops.convert_to_numpy(model(images)), expected)


def test_sincos_positions_of_a_grid_that_is_not_square(tmp_path):
    options = {"image_size": (8, 24), "position_embedding": "sincos2d"}
    save_checkpoint(random_model(options), tmp_path / "wide.npz", "big_vision")
    assert from_checkpoint(tmp_path / "wide.npz").input_shape == (None, 8, 24, 3)


@pytest.mark.parametrize(("place", "frequency"), [(0, 1.0), (1, 1e-4 ** (1 / 11)), (11, 1e-4)])
def test_sincos_table(place, frequency):
    """The formula of NUMERICS 1.12, for the patch in row 2 and column 3."""
    row = sincos_table((4, 5), 48)[0, 2 * 5 + 3]
    expected = [np.sin(3 * frequency), np.cos(3 * frequency)]
    expected += [np.sin(2 * frequency), np.cos(2 * frequency)]
    np.testing.assert_allclose(row[[place, 12 + place, 24 + place, 36 + place]], expected)


def rectangular(case, rows, columns, tmp_path):
    """A case with a table for another grid of patches."""
    arrays = case_arrays(case)
    name = next(name for name in arrays if name.endswith("pos_embedding"))
    has_class_token = "cls" in arrays
    shape = (1, rows * columns + has_class_token, 48)
    arrays[name] = np.random.default_rng(0).normal(size=shape).astype("float32")
    return write(tmp_path / "rectangular.npz", arrays), arrays[name]


# 2 x 5 = 1 + 9 and 5 x 10 = 1 + 49 look like a class token and a square.
@pytest.mark.parametrize("grid", [(3, 5), (2, 5), (5, 10)])
@pytest.mark.parametrize("case", ["a_vit_token", "i1_bv_gap_learn"])
def test_grid_that_is_not_square(case, grid, tmp_path, caplog):
    path, table = rectangular(case, *grid, tmp_path)
    size = (grid[0] * 8, grid[1] * 8)
    model = from_checkpoint(path, image_size=size)
    assert model.input_shape == (None, *size, 3)
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(loaded, table)
    caplog.clear()
    load_checkpoint(model, path)
    line = f"does not record its grid of patches: it is assumed to be the model's, {grid}"
    assert line in caplog.text


@pytest.mark.parametrize("size", [(16, 64), (64, 16)])
def test_as_many_patches_on_another_grid_are_interpolated(size):
    model = case_model("a_vit_token", image_size=size)
    table = case_arrays("a_vit_token")["Transformer/posembed_input/pos_embedding"]
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    assert loaded.shape == table.shape
    assert not np.array_equal(loaded, table)
    # `load_checkpoint` adapts nothing.
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"with \(4, 4\)"):
        load_checkpoint(model, case_path("a_vit_token"))
    assert unchanged(model, before)


def test_a_row_of_the_class_token_that_makes_a_square_grid_one_too_large(tmp_path, caplog):
    """3 x 5 patches and the row of a class token that is not there are as many as 4 x 4 patches."""
    path, table = rectangular("i1_bv_gap_learn", 4, 4, tmp_path)
    model = from_checkpoint(path, image_size=(24, 40))
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(loaded, table[:, 1:])
    assert (
        "a grid of (3, 5) and 1 prefix rows, but a grid of (4, 4) and 0 prefix rows would fit too"
        in caplog.text
    )
    assert from_checkpoint(path).input_shape == (None, 32, 32, 3)


def free(**options):
    """A model of any image size with positions for (8, 24) pixels."""
    return resize(random_model({"image_size": (8, 24), **options}), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "format"), [("m.npz", "google"), ("m.npz", "big_vision"), ("m", "timm")]
)
def test_files_of_models_of_any_size_have_the_stored_positions(file, format, tmp_path):
    pooling = "gap" if format == "big_vision" else "token"
    model = free(pooling=pooling, activation="gelu" if format == "timm" else "gelu_tanh")
    save_checkpoint(model, tmp_path / file, format)
    read = from_checkpoint(tmp_path / file)
    assert read.input_shape == (None, 8, 24, 3)
    np.testing.assert_array_equal(
        to_numpy(read(images(2, 8, 24, 3))), to_numpy(model(images(2, 8, 24, 3)))
    )
    again = resize(from_checkpoint(tmp_path / file, image_size=(16, 8)), None)
    load_checkpoint(model, tmp_path / file)
    assert again.input_shape == model.input_shape
    with pytest.raises(ValueError, match="have the model's grid"):
        load_checkpoint(free(pooling=pooling, image_size=(12, 16)), tmp_path / file)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"position_embedding": "sincos2d"}], ids=str)
def test_keras_files_of_models_of_any_size(options, tmp_path):
    """A `.keras` file keeps the size open; read as a checkpoint, it has the stored size."""
    model, path = free(**options), tmp_path / "m.keras"
    model.save(path)
    assert keras.models.load_model(path).input_shape == model.input_shape
    assert inspect_checkpoint(path).options.image_size == (8, 24)
    read = from_checkpoint(path)
    assert read.options.replace(dtype=None) == model.options.replace(image_size=(8, 24))
    np.testing.assert_array_equal(
        to_numpy(resize(read, None)(images(1, 12, 8, 3))), to_numpy(model(images(1, 12, 8, 3)))
    )
    load_checkpoint(model, path)
    assert from_checkpoint(path, image_size=16).input_shape == (None, 16, 16, 3)
