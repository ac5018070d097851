"""Files with other contents than the arrays of one model: an error of one line names them."""

import numpy as np
import pytest

from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from tests.fixtures.checkpoint_files import (
    assert_refused,
    case_arrays,
    config_next_to,
    put,
    unchanged,
    write,
)
from tests.fixtures.reference import REFERENCE, case_model, case_path

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


def no_vision_transformer(arrays):
    arrays.clear()
    arrays["word_embeddings"] = np.ones((4, 4), "float32")


# Changes of the arrays of a file, and the errors.
CONTENTS = [
    (no_vision_transformer, "or a ResNet of a known layout.* such as word_embeddings"),
    (lambda a: a.pop(QUERY), f"with missing: '{QUERY}'"),
    (put("head/scale", np.ones(3, "float32")), "with unused: 'head/scale'"),
    (
        put(MLP, np.ones((96, 47), "float32")),
        r"misshapen: 'Transformer/.*Dense_1/kernel' is \(96, 47\), not \(96, 48\)",
    ),
    (
        lambda a: a.update({TABLE: a[TABLE][0]}),
        r"is \(17, 48\), not \(1, 17, 48\)|`\(1, positions, width\)`.* \(17, 48\)",
    ),
    (lambda a: a.update({TABLE: np.concatenate([a[TABLE]] * 2)}), r"is \(2, 17, 48\)"),
    (
        lambda a: a.update({QUERY: a[QUERY].reshape(48, 48)}),
        r"misshapen: '.*query/kernel' is \(48, 48\), not \(48, 4, 12\)",
    ),
    (not_finite, f"whose array '{QUERY}' has NaN or infinity"),
    (put("head/bias", np.full(10, 1e300)), "whose array 'head/bias' has NaN or infinity"),
    (
        put("head/bias", np.arange(10)),
        "'head/bias' must hold floating-point numbers. Received: dtype=int64",
    ),
    (
        lambda a: a.update({NORM.replace("_2/", "_1/"): a[NORM]}),
        "'.*LayerNorm_2/scale' and '.*LayerNorm_1/scale', which are the same",
    ),
    (
        lambda a: a.update({"pos_embedding": a[TABLE]}),
        "posembed_input/pos_embedding' and 'pos_embedding', which are the same",
    ),
    (inside_and_outside, "'params/head/kernel' and 'head/kernel', which are the same"),
    (put("Transformer/encoderblock/x", np.float32(1)), "unused: 'Transformer/encoderblock/x'"),
]


@pytest.mark.parametrize(("change", "message"), CONTENTS, ids=[row[1][:40] for row in CONTENTS])
def test_other_contents(change, message, tmp_path):
    arrays = case_arrays(CASE)
    change(arrays)
    assert_refused(write(tmp_path / "changed.npz", arrays), message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_attention_heads": "four"}, "`num_heads` must be an integer of at least 1.*'four'"),
        ({"num_attention_heads": 5}, "`num_heads` must be (a positive divisor|that of the file)"),
        ({"num_attention_heads": 0}, "`num_heads` must be an integer of at least 1.*heads=0"),
        (
            {"hidden_size": 1024, "num_hidden_layers": 24},
            "`hidden_size` of the file's config.json must be .* 48. Received",
        ),
        ({"layer_norm_eps": -1}, "`layer_norm_eps` .* between 0 and 1.*layer_norm_eps=-1"),
        ({"model_type": "dinov2"}, "`model_type` of the file's config.json must be 'vit'"),
        (
            {"hidden_act": "mish"},
            "`hidden_act` of the file's config.json must be 'gelu_python' or 'gelu' or",
        ),
    ],
    ids=str,
)
def test_another_configuration(settings, message, tmp_path):
    assert_refused(config_next_to("hf_classifier", tmp_path, settings), message)


def test_a_configuration_that_is_not_json(tmp_path):
    (config_next_to("hf_classifier", tmp_path, {}) / "config.json").write_text("{")
    assert_refused(tmp_path, "config.json' must hold JSON")


def test_a_distillation_token_without_its_classifier(tmp_path):
    import safetensors.numpy

    arrays = case_arrays("timm_token")
    path = tmp_path / "deit.safetensors"
    rows = np.concatenate([arrays["pos_embed"][:, :1], arrays["pos_embed"]], axis=1)
    arrays |= {"dist_token": arrays["cls_token"], "pos_embed": rows}
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match="missing: 'head_dist.weight', 'head_dist.bias'"):
        from_checkpoint(path, num_heads=4)


def test_another_architecture():
    model = case_model(CASE)
    before = model.get_weights()
    with pytest.raises(
        ValueError, match="unused: .*MAPHead_0/.* and [0-9]+ more.*missing: "
    ) as error:
        load_checkpoint(model, case_path("i3_bv_map_learn"))
    assert unchanged(model, before)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("changes", [{"num_classes": 3}, {"image_size": 48}, {"num_classes": 0}])
def test_loading_adapts_nothing(changes):
    model = case_model(CASE, **changes)
    before = model.get_weights()
    with pytest.raises(ValueError, match="must hold exactly the weights|for the model's grid of"):
        load_checkpoint(model, case_path(CASE))
    assert unchanged(model, before)


@pytest.mark.parametrize("case", ["a_vit_token", "hf_classifier"])
@pytest.mark.parametrize("format", ["big_vision", "timm", "keras"])
def test_another_format_than_asked_for(case, format):
    if (case, format) == ("a_vit_token", "big_vision"):
        # The spellings of both are read as either's.
        assert from_checkpoint(case_path(case), format=format).count_params() == 67594
        return
    with pytest.raises(ValueError, match=f"`path` must be of format '{format}'"):
        from_checkpoint(case_path(case), format=format)


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("a_vit_token", {"format": "flax"}, "`format` must be one of .*format='flax'"),
        ("a_vit_token", {"num_heads": 8}, "`num_heads` must be that of the file.*num_heads=8"),
        ("hf_classifier", {"num_heads": 8}, "`num_heads` must be that of the file.*num_heads=8"),
        ("a_vit_token", {"num_heads": 0}, "`num_heads` must be .*num_heads=0"),
        ("a_vit_token", {"num_classes": -1}, "positive integer. Received: units=-1"),
        ("a_vit_token", {"image_size": 30}, r"`image_size` must be a multiple of \(8, 8\)"),
        ("a_vit_token", {"image_size": "big"}, "`image_size` must be .*'big'"),
        ("timm_token.safetensors", {}, "`num_heads` must be given"),
        ("timm_token.safetensors", {"num_heads": 5}, "must be a positive divisor of the width 48"),
        (3, {}, "`path` must be an existing file .* Received: path='3'"),
    ],
)
def test_wrong_argument(case, options, message):
    is_file = isinstance(case, str) and case.endswith(".safetensors")
    path = REFERENCE / case if is_file else case_path(case) if case != 3 else case
    with pytest.raises(ValueError, match=message):
        from_checkpoint(path, **options)
