"""Position embeddings of files: rows before the patches, other grids, fixed sines and cosines."""

import logging

import numpy as np
import pytest
from keras import ops

from keras_vit.checkpoints import from_checkpoint, load_checkpoint, save_checkpoint
from keras_vit.checkpoints.position_rows import PositionRows, position_rows
from keras_vit.layers.positions import sincos_table
from keras_vit.models.image_model import options_of
from keras_vit.models.vit import build_model
from tests.fixtures.checkpoint_files import case_arrays, random_model, unchanged, write
from tests.fixtures.reference import assert_logits, case_model, case_outputs, case_path


def sincos_file(tmp_path):
    arrays, name = case_arrays("i1_bv_gap_learn"), "params/pos_embedding"
    table = sincos_table((4, 4), 48).astype("float32")
    learned = write(tmp_path / "learned.npz", {**arrays, name: table})
    del arrays[name]
    return learned, write(tmp_path / "sincos.npz", arrays)


def test_sincos_positions_are_those_of_a_learned_table(tmp_path):
    learned, fixed = sincos_file(tmp_path)
    images = case_outputs("i1_bv_gap_learn")["images"]
    model = from_checkpoint(fixed, image_size=32)
    assert not any("position" in variable.path for variable in model.weights)
    expected = ops.convert_to_numpy(from_checkpoint(learned)(images))
    assert_logits(ops.convert_to_numpy(model(images)), expected)


def test_sincos_positions_do_not_tell_the_image_size(tmp_path, caplog):
    _, fixed = sincos_file(tmp_path)
    with caplog.at_level(logging.INFO):
        model = from_checkpoint(fixed)
    assert model.input_shape == (None, 224, 224, 3)
    assert "does not record its image size: it is assumed to be 224 pixels" in caplog.text


def test_sincos_positions_of_a_grid_that_is_not_square(tmp_path, caplog):
    options = {"image_size": (8, 24), "position_embedding": "sincos2d"}
    save_checkpoint(random_model(options), tmp_path / "wide.npz", "big_vision")
    assert not caplog.messages
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
@pytest.mark.parametrize("grid", [(3, 5), (5, 3), (2, 5), (5, 10), (1, 2)])
@pytest.mark.parametrize("case", ["a_vit_token", "i1_bv_gap_learn"])
def test_grid_that_is_not_square(case, grid, tmp_path):
    path, table = rectangular(case, *grid, tmp_path)
    size = (grid[0] * 8, grid[1] * 8)
    model = from_checkpoint(path, image_size=size)
    assert model.input_shape == (None, *size, 3)
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(loaded, table)
    load_checkpoint(model, path)


def test_a_grid_that_cannot_be_told_is_asked_for(tmp_path):
    path, _ = rectangular("a_vit_token", 3, 5, tmp_path)
    for size in (None, 32):
        with pytest.raises(ValueError, match="`image_size` must be that of the file"):
            from_checkpoint(path, image_size=size)


@pytest.mark.parametrize("size", [(16, 64), (64, 16)])
def test_as_many_patches_on_another_grid_are_interpolated(size):
    model = case_model("a_vit_token", image_size=size)
    table = case_arrays("a_vit_token")["Transformer/posembed_input/pos_embedding"]
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    assert loaded.shape == table.shape
    assert not np.array_equal(loaded, table)
    # `load_checkpoint` adapts nothing.
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"`from_checkpoint` with `image_size` .*, for \(4, 4\)"):
        load_checkpoint(model, case_path("a_vit_token"))
    assert unchanged(model, before)


def test_a_row_of_the_class_token_that_makes_a_square_grid_one_too_large(tmp_path, caplog):
    """3 x 5 patches and the row of a class token that is not there are as many as 4 x 4 patches."""
    path, table = rectangular("i1_bv_gap_learn", 4, 4, tmp_path)
    model = from_checkpoint(path, image_size=(24, 40))
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(loaded, table[:, 1:])
    line = caplog.messages[0]
    assert "a grid of (3, 5) and 1 prefix rows, but (4, 4) and 0 fit too" in line
    assert from_checkpoint(path).input_shape == (None, 32, 32, 3)


def test_no_tokens_before_the_patches_are_one_possibility(caplog):
    """A model with neither a class token nor registers has 0 twice."""
    assert position_rows(16, counts=(0, 0)) == PositionRows((4, 4), 0)
    assert not caplog.messages


def test_squares_after_two_numbers_of_tokens(caplog):
    assert position_rows(9, counts=(0, 5)) == PositionRows((3, 3), 0)
    assert caplog.messages[0].endswith(
        "but (2, 2) and 5 fit too; `from_checkpoint` takes the `image_size`"
    )
    caplog.clear()
    assert position_rows(9, counts=(0, 5), known=(2, 2)) == PositionRows((2, 2), 5)
    assert not caplog.messages


def test_a_grid_that_the_file_does_not_record_is_assumed_with_a_warning(tmp_path, caplog):
    path, _ = rectangular("a_vit_token", 3, 5, tmp_path)
    model = from_checkpoint(path, image_size=(40, 24))
    caplog.clear()
    load_checkpoint(model, path)
    line = "does not record its grid of patches: it is assumed to be the model's, (5, 3)"
    assert caplog.messages == [f"{path} {line}"]


def test_fixed_positions_are_assumed_with_a_warning(tmp_path, caplog):
    _, fixed = sincos_file(tmp_path)
    model = from_checkpoint(fixed, image_size=32)
    line = f"{fixed} has no position embedding: the fixed sines and cosines are assumed"
    assert caplog.messages == [line]
    caplog.clear()
    options = options_of(model).replace(position_embedding="none")
    load_checkpoint(build_model(options), fixed)
    assert caplog.messages == [
        line,
        f"{fixed}: the model has position_embedding='none', the file 'sincos2d'",
    ]
