"""Every spelling of Google's files gives the numbers of the reference."""

import logging
import re

import numpy as np
import pytest
from keras import ops

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, load_checkpoint
from keras_vit.checkpoints.positions import PositionRows, position_rows
from keras_vit.layers.tokens import sincos_table
from keras_vit.models.describe import describe
from keras_vit.models.options import make_model
from tests.fixtures.checkpoint_files import as_bfloat16, case_arrays, unchanged, write
from tests.fixtures.reference import assert_logits, case_model, case_outputs, case_path


def in_folder(prefix, **others):
    return lambda arrays: {**{f"{prefix}{name}": a for name, a in arrays.items()}, **others}


def without_params(arrays):
    return {name.removeprefix("params/"): array for name, array in arrays.items()}


def linen(arrays):
    for old, new in (("LayerNorm_2", "LayerNorm_1"), ("MlpBlock_3", "MlpBlock_0")):
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    attention = "MultiHeadDotProductAttention"
    return {name.replace(f"{attention}_1", f"{attention}_0"): a for name, a in arrays.items()}


def inside_the_transformer(arrays):
    return {name.replace("posembed_input/", ""): array for name, array in arrays.items()}


def at_the_top(arrays):
    old = "Transformer/posembed_input/pos_embedding"
    return {name.replace(old, "pos_embedding"): array for name, array in arrays.items()}


def separate_class_token(arrays):
    arrays = at_the_top(linen(arrays))
    table = arrays["pos_embedding"]
    return {**arrays, "cls": arrays["cls"] + table[:, :1], "pos_embedding": table[:, 1:]}


def class_row_without_class_token(arrays):
    table = arrays["pos_embedding"]
    extra = np.ones_like(table[:, :1])
    return {**arrays, "pos_embedding": np.concatenate([extra, table], axis=1)}


def stacked(arrays):
    """As a scan over the blocks stores them: one array with a leading depth axis."""
    blocks, rest = {}, {}
    for name, array in arrays.items():
        block = re.search(r"encoderblock_(\d+)", name)
        if block:
            blocks.setdefault(name.replace(block[0], "encoderblock"), {})[int(block[1])] = array
        else:
            rest[name] = array
    stacks = {name: np.stack([parts[i] for i in sorted(parts)]) for name, parts in blocks.items()}
    return {**rest, **stacks}


def inlined_map_head(arrays):
    return {name.replace("MAPHead_0/", ""): array for name, array in arrays.items()}


NOISE = np.ones(3, "float32")
TEXT_TOWER = {
    "params/txt/Encoder_0/embedding/kernel": NOISE,
    "params/t": NOISE[:1],
    "params/b": NOISE[:1],
}
OPTIMIZER = {
    "opt/state/param_states/embedding/kernel/grad_ema": NOISE,
    "opt/state/step": np.array(7),
}
NEW_OPTIMIZER = {"opt/0/mu/embedding/kernel": NOISE, "opt/count": np.array(7)}

LAYOUTS = [
    ("a_vit_token", linen, "google"),
    ("a_vit_token", inside_the_transformer, "big_vision"),
    ("a_vit_token", at_the_top, "big_vision"),
    ("a_vit_token", separate_class_token, "big_vision"),
    ("a_vit_token", in_folder("opt/target/", **OPTIMIZER), "google"),
    ("a_vit_token", in_folder("params/", **NEW_OPTIMIZER), "google"),
    ("a_vit_token", stacked, "google"),
    ("b_vit_token_rep", stacked, "google"),
    ("i1_bv_gap_learn", without_params, "big_vision"),
    ("i1_bv_gap_learn", lambda a: class_row_without_class_token(without_params(a)), "big_vision"),
    ("i1_bv_gap_learn", stacked, "big_vision"),
    (
        "i3_bv_map_learn",
        lambda a: in_folder("params/img/", **TEXT_TOWER)(without_params(a)),
        "big_vision",
    ),
    ("i3_bv_map_learn", inlined_map_head, "big_vision"),
    ("i3_bv_map_learn", lambda a: stacked(inlined_map_head(without_params(a))), "big_vision"),
]


@pytest.mark.parametrize(("case", "change", "format"), LAYOUTS)
def test_layout(case, change, format, tmp_path):
    path = write(tmp_path / "changed.npz", change(case_arrays(case)))
    assert inspect_checkpoint(path).format == format
    check_logits(from_checkpoint(path), case)
    model = case_model(case)
    load_checkpoint(model, path)
    check_logits(model, case)


def check_logits(model, case):
    reference = case_outputs(case)
    assert_logits(ops.convert_to_numpy(model(reference["images"])), reference["logits"])


def test_compressed(tmp_path):
    path = write(tmp_path / "compressed.npz", case_arrays("a_vit_token"), compressed=True)
    check_logits(from_checkpoint(path), "a_vit_token")


@pytest.mark.parametrize(
    ("store", "exactly"),
    [
        (lambda a: a.astype("float16"), lambda a: a.astype("float16").astype("float32")),
        (as_bfloat16, lambda a: (a.view(np.uint32) & 0xFFFF0000).view("float32")),
        (lambda a: a.astype("float64"), lambda a: a),
    ],
    ids=["float16", "bfloat16", "float64"],
)
def test_other_dtypes_are_read_bit_for_bit(store, exactly, tmp_path):
    arrays = case_arrays("a_vit_token")
    path = write(tmp_path / "other.npz", {name: store(array) for name, array in arrays.items()})
    kernel = from_checkpoint(path).get_layer("head").kernel
    expected = exactly(arrays["head/kernel"])
    np.testing.assert_array_equal(ops.convert_to_numpy(kernel.value), expected)


def test_what_is_ignored_is_told(tmp_path):
    arrays = in_folder("opt/target/", **OPTIMIZER)(case_arrays("a_vit_token"))
    summary = inspect_checkpoint(write(tmp_path / "optimizer.npz", arrays))
    assert set(summary.ignored) == set(OPTIMIZER)
    assert summary.parameters == 67594


@pytest.mark.parametrize("bias", [0, 1])
def test_a_zero_head_is_told(bias, tmp_path, caplog):
    arrays = case_arrays("a_vit_token")
    arrays["head/kernel"] = np.zeros_like(arrays["head/kernel"])
    arrays["head/bias"] = np.full_like(arrays["head/bias"], bias)
    path = write(tmp_path / "zero.npz", arrays)
    assert inspect_checkpoint(path).zero_head == (bias == 0)
    with caplog.at_level(logging.WARNING):
        from_checkpoint(path)
    line = "all images have the same logits, as the kernel of the head is zero"
    assert caplog.messages == [f"{path}: {line}"]


def sincos_file(tmp_path):
    arrays = without_params(case_arrays("i1_bv_gap_learn"))
    table = sincos_table((4, 4), 48).astype("float32")
    learned = write(tmp_path / "learned.npz", {**arrays, "pos_embedding": table})
    del arrays["pos_embedding"]
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
    assert "does not tell its image size: it is taken for 224 pixels" in caplog.text


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
    with pytest.raises(ValueError, match="`image_size` must be that of the file"):
        from_checkpoint(path)
    with pytest.raises(ValueError, match="`image_size` must be that of the file"):
        from_checkpoint(path, image_size=32)


@pytest.mark.parametrize("size", [(16, 64), (64, 16)])
def test_as_many_patches_on_another_grid_are_interpolated(size):
    model = case_model("a_vit_token", image_size=size)
    table = case_arrays("a_vit_token")["Transformer/posembed_input/pos_embedding"]
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    assert loaded.shape == table.shape
    assert not np.array_equal(loaded, table)


def test_a_row_of_the_class_token_that_makes_a_square_grid_one_too_large(tmp_path, caplog):
    """3 x 5 patches and the row of a class token that is not there are as many as 4 x 4 patches."""
    path, table = rectangular("i1_bv_gap_learn", 4, 4, tmp_path)
    model = from_checkpoint(path, image_size=(24, 40))
    loaded = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(loaded, table[:, 1:])
    line = caplog.messages[0]
    assert "a grid of (3, 5) and 1 prefix rows, but (4, 4) and 0 fit too" in line
    assert from_checkpoint(path).input_shape == (None, 32, 32, 3)


def test_squares_after_two_numbers_of_tokens(caplog):
    assert position_rows(9, counts=(0, 5)) == PositionRows((3, 3), 0)
    assert caplog.messages[0].endswith(
        "but (2, 2) and 5 fit too; `from_checkpoint` takes the `image_size`"
    )
    caplog.clear()
    assert position_rows(9, counts=(0, 5), known=(2, 2)) == PositionRows((2, 2), 5)
    assert not caplog.messages


@pytest.mark.parametrize("size", [(16, 64), (64, 16)])
def test_a_square_grid_is_not_loaded_into_another_of_as_many_patches(size):
    model = case_model("a_vit_token", image_size=size)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"`from_checkpoint` with `image_size` .*, for \(4, 4\)"):
        load_checkpoint(model, case_path("a_vit_token"))
    assert unchanged(model, before)


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
    config = {**describe(model), "position_embedding": "none"}
    load_checkpoint(make_model(config), fixed)
    assert caplog.messages == [
        line,
        f"{fixed}: the model has position_embedding='none', the file 'sincos2d'",
    ]


def test_another_pooling_than_the_projects_is_told(caplog):
    config = {**describe(case_model("a_vit_token")), "pooling": "gap"}
    load_checkpoint(make_model(config), case_path("a_vit_token"))
    assert "the model has pooling='gap', the file 'token'" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("head/kernel", np.nan), ("head/bias", np.inf)], ids=str
)
def test_a_head_that_is_not_finite_is_told(name, value, tmp_path):
    arrays = case_arrays("a_vit_token")
    arrays[name][..., 0] = value
    summary = inspect_checkpoint(write(tmp_path / "nan.npz", arrays))
    assert summary.head_state == "not finite"
    assert (summary.finite_head, summary.zero_head) == (False, False)
    assert inspect_checkpoint(case_path("a_vit_token")).head_state is None
