"""Files of hybrids and BiT: their layouts, what is written, and what is refused."""

import re

import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.checkpoints import (
    from_checkpoint,
    inspect_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from tests.fixtures.checkpoint_files import (
    assert_same_bits,
    case_arrays,
    linen,
    put,
    unchanged,
    write,
)
from tests.fixtures.reference import (
    assert_intermediate,
    assert_logits,
    case_model,
    case_outputs,
    case_path,
)

CASES = {"e2_hybrid_r50_half": "google", "k1_bit_resnetv2": "big_transfer"}


def logits(model, reference):
    return ops.convert_to_numpy(model(reference["images"]))


def flat_norms(arrays):
    """Today's names and shapes of vit_jax: GroupNorm has one dimension."""
    arrays = linen(arrays)
    return {name: a.reshape(-1) if "gn" in name else a for name, a in arrays.items()}


def in_params(arrays):
    return {f"params/{name}": array for name, array in arrays.items()}


def numbered(arrays):
    """As some of BiT's published files are."""
    counts = iter(range(1, 1000))
    return {
        re.sub("standardized_conv2d/", lambda _: f"standardized_conv2d_{next(counts)}/", name): a
        for name, a in arrays.items()
    }


HYBRID, BIT = CASES
LAYOUTS = [(HYBRID, flat_norms), (HYBRID, in_params), (BIT, numbered)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), LAYOUTS)
def test_other_layouts(name, change, tmp_path):
    path = write(tmp_path / "changed.npz", change(case_arrays(name)))
    assert inspect_checkpoint(path).format == CASES[name]
    reference = case_outputs(name)
    size = reference["images"].shape[1:3]
    model = from_checkpoint(path, image_size=size)
    assert_logits(logits(model, reference), reference["logits"])
    load_checkpoint(model, path)
    assert_logits(logits(model, reference), reference["logits"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "format"), CASES.items())
def test_the_file_that_was_read_is_written(name, format, tmp_path):
    save_checkpoint(case_model(name), tmp_path / "written.npz", format)
    assert_same_bits(tmp_path / "written.npz", case_path(name))


@pytest.mark.slow
@pytest.mark.parametrize("in_four_dimensions", [False, True])
def test_version_1_of_big_vision(in_four_dimensions, tmp_path):
    """`bit.py` has the hybrids' ResNet and the mean of its maps: those of the reference."""
    arrays = {
        f"params/{name}": array if in_four_dimensions or "gn" not in name else array.reshape(-1)
        for name, array in case_arrays("e2_hybrid_r50_half").items()
        if name.startswith(("conv_root", "gn_root", "block"))
    }
    path = write(tmp_path / "v1.npz", arrays)
    reference = case_outputs("e2_hybrid_r50_half")
    model = from_checkpoint(path, image_size=64)
    assert inspect_checkpoint(path).format == "big_vision"
    expected = reference["resnet_block3"].mean(axis=(1, 2))
    assert_intermediate(logits(model, reference), expected)
    save_checkpoint(model, tmp_path / "again.npz", "big_vision")
    if not in_four_dimensions:
        assert_same_bits(tmp_path / "again.npz", path)
    else:
        assert_intermediate(
            logits(from_checkpoint(tmp_path / "again.npz", image_size=64), reference), expected
        )


@pytest.mark.parametrize("name", CASES)
def test_keras_hub_has_none(name):
    with pytest.raises(ValueError, match="counterpart in keras-hub|for 'keras_hub' files"):
        keras_vit.to_keras_hub(case_model(name))


def test_the_file_tells_the_architecture():
    hybrid = inspect_checkpoint(case_path("e2_hybrid_r50_half"))
    assert hybrid.options.resnet_stages == (3, 4, 9)
    assert hybrid.options.resnet_width == 32
    assert hybrid.options.image_size == (64, 64)
    assert hybrid.parameters == 3_050_010
    bit = inspect_checkpoint(case_path("k1_bit_resnetv2"))
    assert (bit.options.stages, bit.options.width) == ((2, 1, 1, 1), 32)
    assert (bit.parameters, bit.variant) == (2_035_370, None)


@pytest.mark.slow
def test_builders_take_weights(tmp_path):
    """A file of random values with the names of a published one."""
    model = keras_vit.BiT_R50x1(num_classes=10, image_size=32)
    path = tmp_path / "R50x1_160.npz"
    save_checkpoint(model, path, "big_transfer")
    assert keras_vit.BiT_R50x1(weights=path).input_shape == (None, 160, 160, 3)
    loaded = keras_vit.BiT_R50x1(5, 48, weights=path)
    assert (loaded.input_shape, loaded.output_shape) == ((None, 48, 48, 3), (None, 5))
    assert from_checkpoint(path).name == "BiT_R50x1"
    for builder in (keras_vit.BiT_R50x3, keras_vit.ViT_Ti16):
        with pytest.raises(ValueError, match=f"`weights` must be those of {builder.__name__}"):
            builder(weights=path)


@pytest.mark.parametrize("prefix", ["module.", "module.model."])
def test_a_prefix_of_all_names_is_left_out(prefix, tmp_path):
    arrays = {prefix + name: array for name, array in case_arrays("a_vit_token").items()}
    model = from_checkpoint(write(tmp_path / "a.npz", arrays))
    assert unchanged(model, case_model("a_vit_token").get_weights())


ROOT = "resnet/root_block/standardized_conv2d/kernel"


def without_block_2(arrays):
    for name in [name for name in arrays if name.startswith("resnet/block2/")]:
        del arrays[name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("resnet/block2/unit01/b/group_norm/beta"), "missing: .*unit01/b/group"),
        (put("resnet/extra", np.ones(3)), "unused: 'resnet/extra'"),
        (lambda a: a.pop(ROOT), "of a known layout"),
        (without_block_2, "must hold the arrays of all blocks and units"),
        (put("resnet/group_norm/gamma", np.ones(7, "float32")), "misshapen: 'resnet/group_norm"),
    ],
)
def test_a_damaged_file(change, message, tmp_path):
    arrays = case_arrays("k1_bit_resnetv2")
    change(arrays)
    with pytest.raises(ValueError, match=message):
        from_checkpoint(write(tmp_path / "damaged.npz", arrays))


@pytest.mark.parametrize("option", [{"num_heads": 3}, {"width": 64}, {"preactivation": False}])
def test_an_option_that_the_file_contradicts_is_refused(option):
    with pytest.raises(ValueError, match="must be that of the file"):
        from_checkpoint(case_path("k1_bit_resnetv2"), **option)
