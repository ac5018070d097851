"""Every spelling of Google's files gives the numbers of the reference."""

import re

import numpy as np
import pytest
from keras import ops

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, load_checkpoint
from tests.fixtures.checkpoint_files import as_bfloat16, case_arrays, linen, write
from tests.fixtures.reference import assert_logits, case_outputs


def in_folder(prefix, **others):
    return lambda arrays: {**{f"{prefix}{name}": a for name, a in arrays.items()}, **others}


def without_params(arrays):
    return {name.removeprefix("params/"): array for name, array in arrays.items()}


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
SCALARS = {"params/t": NOISE[:1], "params/b": NOISE[:1]}
TEXT_TOWER = {"params/txt/Encoder_0/embedding/kernel": NOISE, **SCALARS}
STATE = "opt/state/param_states/embedding/kernel/grad_ema"
OPTIMIZER = {STATE: NOISE, "opt/state/step": np.array(7)}
NEW_OPTIMIZER = {"opt/0/mu/embedding/kernel": NOISE, "opt/count": np.array(7)}


def image_tower(arrays):
    return in_folder("params/img/", **TEXT_TOWER)(without_params(arrays))


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
    ("i3_bv_map_learn", image_tower, "big_vision"),
    ("i3_bv_map_learn", inlined_map_head, "big_vision"),
    ("i3_bv_map_learn", lambda a: stacked(inlined_map_head(without_params(a))), "big_vision"),
]


@pytest.mark.parametrize(("case", "change", "format"), LAYOUTS)
def test_layout(case, change, format, tmp_path):
    path = write(tmp_path / "changed.npz", change(case_arrays(case)))
    assert inspect_checkpoint(path).format == format
    model = from_checkpoint(path)
    check_logits(model, case)
    for variable in model.weights:
        variable.assign(ops.zeros_like(variable))
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


@pytest.mark.parametrize("bias", [0, 1])
def test_a_zero_head_is_told(bias, tmp_path, caplog):
    arrays = case_arrays("a_vit_token")
    arrays["head/kernel"] = np.zeros_like(arrays["head/kernel"])
    arrays["head/bias"] = np.full_like(arrays["head/bias"], bias)
    path = write(tmp_path / "zero.npz", arrays)
    assert (inspect_checkpoint(path).head_state == "zero") == (bias == 0)
    from_checkpoint(path)
    assert "all images have the same logits, because the kernel of the head is zero" in caplog.text
