"""Files with other contents than the arrays of one model: an error of one line names them."""

import numpy as np
import pytest

from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from tests.fixtures.checkpoint_files import (
    assert_refused,
    case_arrays,
    put,
    unchanged,
    write,
)
from tests.fixtures.reference import case_model, case_path

CASE = "a_vit_token"
QUERY = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel"
TABLE = "Transformer/posembed_input/pos_embedding"
NORM = "Transformer/encoderblock_0/LayerNorm_2/scale"
MLP = "Transformer/encoderblock_0/MlpBlock_3/Dense_1/kernel"


def not_finite(arrays):
    arrays[QUERY][0, 0, 0] = np.nan


def inside_and_outside(arrays):
    arrays |= {f"params/{name}": arrays.pop(name) for name in list(arrays)}
    arrays["head/kernel"] = arrays["params/head/kernel"] * 3


# Changes of the arrays of a file, and the errors.
CONTENTS = [
    (lambda a: a.pop(QUERY), f"with missing: '{QUERY}'"),
    (put("head/scale", np.ones(3, "float32")), "with unused: 'head/scale'"),
    (put(MLP, np.ones((96, 47), "float32")), "misshapen: 'Transformer/.*Dense_1/kernel'"),
    (lambda a: a.update({TABLE: np.concatenate([a[TABLE]] * 2)}), r"is \(2, 17, 48\)"),
    (lambda a: a.update({QUERY: a[QUERY].reshape(48, 48)}), "misshapen: '.*query/kernel'"),
    (not_finite, f"whose array '{QUERY}' has NaN or infinity"),
    (put("head/bias", np.full(10, 1e300)), "whose array 'head/bias' has NaN or infinity"),
    (put("head/bias", np.arange(10)), "'head/bias' must hold floating-point numbers"),
    (lambda a: a.update({NORM.replace("_2/", "_1/"): a[NORM]}), "which are the same"),
    (inside_and_outside, "'params/head/kernel' and 'head/kernel', which are the same"),
]


@pytest.mark.parametrize(("change", "message"), CONTENTS, ids=[row[1][:40] for row in CONTENTS])
def test_other_contents(change, message, tmp_path):
    arrays = case_arrays(CASE)
    change(arrays)
    assert_refused(write(tmp_path / "changed.npz", arrays), message)


def test_a_distillation_token_without_its_classifier(tmp_path):
    import safetensors.numpy

    arrays = case_arrays("timm_token")
    path = tmp_path / "deit.safetensors"
    rows = np.concatenate([arrays["pos_embed"][:, :1], arrays["pos_embed"]], axis=1)
    arrays |= {"dist_token": arrays["cls_token"], "pos_embed": rows}
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match="missing: 'head_dist.weight', 'head_dist.bias'"):
        from_checkpoint(path, num_heads=4)


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("i3_bv_map_learn", {}),
        (CASE, {"num_classes": 3}),
        (CASE, {"image_size": 48}),
        (CASE, {"num_classes": 0}),
    ],
)
def test_loading_adapts_nothing(case, changes):
    model = case_model(CASE, **changes)
    before = model.get_weights()
    with pytest.raises(ValueError, match="must hold exactly the weights|have the model's grid of"):
        load_checkpoint(model, case_path(case))
    assert unchanged(model, before)


@pytest.mark.parametrize(
    ("case", "option", "message"),
    [
        ("a_vit_token", {"format": "timm"}, "`path` must be of format 'timm'"),
        ("hf_classifier", {"format": "big_vision"}, "`path` must be of format 'big_vision'"),
        ("a_vit_token", {"num_heads": 8}, "`num_heads` must be that of the file"),
        ("hf_classifier", {"num_heads": 8}, "`num_heads` must be that of the file"),
        ("a_vit_token", {"image_size": 30}, "`image_size` must be a multiple of"),
    ],
)
def test_an_argument_that_the_file_contradicts_is_refused(case, option, message):
    with pytest.raises(ValueError, match=message):
        from_checkpoint(case_path(case), **option)
