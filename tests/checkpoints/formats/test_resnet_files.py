"""Files of hybrids and BiT: their layouts, what is written, and what is refused."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit import features, resnet
from keras_vit.checkpoints import (
    from_checkpoint,
    inspect_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from keras_vit.checkpoints.formats import written_formats
from tests.fixtures.checkpoint_files import assert_same_bits, case_arrays, linen, put, target, write
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


FAMILIES = {"hybrid": "google", "bit": "big_transfer", "version 1": "big_vision"}
REFUSED = [
    (family, format)
    for family, written in FAMILIES.items()
    for format in written_formats()
    if format != written
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "format"), REFUSED)
def test_a_model_is_written_whole_or_not_at_all(family, format, tmp_path):
    if family == "hybrid":
        model = case_model("e2_hybrid_r50_half")
    else:
        options = {"num_classes": 3, "image_size": 32, "preactivation": family == "bit"}
        model = resnet((1,), 32, **options)
    path = target(tmp_path, format)
    with pytest.raises(ValueError, match="`model` must "):
        save_checkpoint(model, path, format)
    assert not path.exists()


@pytest.mark.parametrize("family", ["hybrid", "bit"])
def test_keras_hub_has_none(family):
    model = case_model("k1_bit_resnetv2" if family == "bit" else "e2_hybrid_r50_half")
    with pytest.raises(ValueError, match="counterpart in keras-hub|for 'keras_hub' files"):
        keras_vit.to_keras_hub(model)


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
def test_adapted(tmp_path):
    hybrid = from_checkpoint(case_path("e2_hybrid_r50_half"), num_classes=4, image_size=(96, 64))
    assert (hybrid.input_shape, hybrid.output_shape) == ((None, 96, 64, 3), (None, 4))
    assert not np.any(hybrid.predict(np.ones((1, 96, 64, 3)), verbose=0))
    bit = from_checkpoint(case_path("k1_bit_resnetv2"), num_classes=0, image_size=50)
    reference = case_outputs("k1_bit_resnetv2")
    representation = features(keras_vit.resize(bit, 64), reference["images"])
    assert_intermediate(representation, reference["pre_logits"])


def test_a_name_of_the_catalog_counts_only_for_its_architecture(tmp_path):
    path = tmp_path / "R50x1_160.npz"
    path.write_bytes(case_path("k1_bit_resnetv2").read_bytes())
    assert from_checkpoint(path).input_shape == (None, 224, 224, 3)


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
    with pytest.raises(ValueError, match="`weights` must be those of BiT_R50x3.*width=64"):
        keras_vit.BiT_R50x3(weights=path)
    with pytest.raises(ValueError, match="those of ViT_Ti16.*family=a ResNet"):
        keras_vit.ViT_Ti16(weights=path)
    with pytest.raises(ValueError, match="those of BiT_R50x1.*family=a Vision Transformer"):
        keras_vit.BiT_R50x1(weights=case_path("a_vit_token"))


@pytest.mark.parametrize("prefix", ["module.", "module.model."])
def test_a_prefix_of_all_names_is_left_out(prefix, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    arrays = dict(np.load(case_path("a_vit_token")))
    np.savez(tmp_path / "a.npz", **{prefix + name: arrays[name] for name in arrays})
    model = keras_vit.from_checkpoint(tmp_path / "a.npz")
    assert f"the prefix {prefix!r} of all names is left out" in caplog.text
    expected = keras_vit.from_checkpoint(case_path("a_vit_token")).get_weights()
    for found, value in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, value)


UNKNOWN = "`path` must be a Vision Transformer or a ResNet of a known layout"
ROOT = "resnet/root_block/standardized_conv2d/kernel"


def without(prefix):
    def change(arrays):
        for name in [name for name in arrays if name.startswith(prefix)]:
            del arrays[name]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("resnet/block2/unit01/b/group_norm/beta"), "missing: .*unit01/b/group"),
        (put("resnet/extra", np.ones(3)), "unused: 'resnet/extra'"),
        (lambda a: a.pop(ROOT), UNKNOWN),
        (without("resnet/block2/"), "`path` must hold the arrays of all blocks and units"),
        (without("resnet/block4/"), "with unused|with misshapen"),
        (put(ROOT, np.ones((7, 7, 3, 48))), r"multiple of the number of channels \(48\)"),
        (put(ROOT, np.ones(3)), UNKNOWN),
        (
            put("resnet/group_norm/gamma", np.ones(7, "float32")),
            r"misshapen: 'resnet/group_norm/gamma' is \(7,\)",
        ),
        (
            put("resnet/head/conv2d/bias", np.full(10, np.nan, "float32")),
            "finite numbers.*head/conv2d/bias",
        ),
    ],
)
def test_a_damaged_file(change, message, tmp_path):
    arrays = case_arrays("k1_bit_resnetv2")
    change(arrays)
    with pytest.raises(ValueError, match=message):
        from_checkpoint(write(tmp_path / "damaged.npz", arrays))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_heads": 3}, "`num_heads` must be that of the file, None. Received: num_heads=3"),
        ({"width": 64}, "`width` must be that of the file, 32.*width=64"),
        ({"preactivation": False}, "`preactivation` must be that of the file, True"),
    ],
)
def test_options_of_another_family(option, message):
    with pytest.raises(ValueError, match=message):
        from_checkpoint(case_path("k1_bit_resnetv2"), **option)


@pytest.mark.parametrize("shape", [(48, 512), (), (1, 1, 512, 0)])
def test_a_kernel_of_another_rank_is_named(shape, tmp_path):
    arrays = case_arrays("e2_hybrid_r50_half")
    arrays["embedding/kernel"] = np.ones(shape, "float32")
    path = write(tmp_path / "damaged.npz", arrays)
    with pytest.raises(ValueError, match="Received: .*damaged.npz"):
        from_checkpoint(path)


def test_what_no_file_tells_is_the_callers():
    model = from_checkpoint(
        case_path("k1_bit_resnetv2"), classifier_activation="softmax", name="mine", dtype="bfloat16"
    )
    assert model.get_layer("head").activation is keras.activations.softmax
    assert (model.name, model.get_layer("root_conv").dtype_policy.name) == ("mine", "bfloat16")
