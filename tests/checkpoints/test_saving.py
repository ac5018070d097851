"""Files that are written: the same arrays, bit for bit, or an error."""

import json
import os
import stat
import zipfile

import numpy as np
import pytest
from keras import ops

from keras_vit import resnet
from keras_vit.checkpoints import from_checkpoint, load_checkpoint, save_checkpoint
from keras_vit.checkpoints.formats import FORMATS, written_formats
from keras_vit.core.image_spec import ImageSpec
from tests.fixtures.checkpoint_files import (
    arrays_of,
    assert_same_bits,
    random_model,
    target,
    unchanged,
)
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import ABLATIONS, TOWERS
from tests.fixtures.reference import REFERENCE, assert_logits, case_model, case_outputs, case_path
from tests.fixtures.tiny import images

GELU = {"activation": "gelu"}


@pytest.mark.parametrize(
    ("case", "format"),
    [
        ("a_vit_token", "google"),
        ("b_vit_token_rep", "google"),
        ("h2_posemb_gap_4to6", "google"),
        ("i1_bv_gap_learn", "big_vision"),
        ("i3_bv_map_learn", "big_vision"),
    ],
)
def test_the_file_that_was_read(case, format, tmp_path):
    path = tmp_path / "new" / "written.npz"
    save_checkpoint(case_model(case), path, format)
    assert_same_bits(path, case_path(case))


@pytest.mark.parametrize("case", ["timm_token", "timm_gap_fcnorm", "hf_classifier"])
def test_the_directory_that_was_read(case, tmp_path):
    format = "huggingface" if case.startswith("hf") else "timm"
    save_checkpoint(case_model(case), tmp_path, format)
    original = case_path(case)
    original = original / "model.safetensors" if original.is_dir() else original
    assert_same_bits(tmp_path / "model.safetensors", original)
    # The configuration records the rest: no argument is needed.
    reference = case_outputs(case)
    logits = from_checkpoint(tmp_path)(reference["images"])
    assert_logits(ops.convert_to_numpy(logits), reference["logits"])


def test_the_configuration_of_transformers(tmp_path):
    save_checkpoint(case_model("hf_classifier"), tmp_path, "huggingface")
    ours = json.loads((tmp_path / "config.json").read_text())
    theirs = json.loads((REFERENCE / "hf_classifier" / "config.json").read_text())
    missing = {"encoder_stride", "initializer_range", "transformers_version"}
    assert set(theirs) - set(ours) == missing
    assert all(ours[name] == theirs[name] for name in set(theirs) - missing)


# What each format has to keep: options of models, and whether the format has a place for them.
TRANSFORMERS = ("huggingface", "huggingface_tf")
ALL = ("google", "big_vision", "timm", *TRANSFORMERS, "huggingface_vit_msn", "torchvision")
SIGLIP = ("huggingface_siglip", "huggingface_siglip2")
DINOV2 = "huggingface_dinov2_with_registers"
GAP = ("google", "big_vision", "timm", *SIGLIP)
RELU = {"activation": "relu"}
# Options that must be given when a file of the format is read.
UNRECORDED = {"torchvision": ("num_heads", "activation")}
OPTIONS = [
    ({}, ALL),
    ({"num_classes": 0}, (*ALL, "huggingface_vit_mae")),
    # TFViT computes a square grid from one number, and torchvision takes one number.
    ({"image_size": (8, 24)}, tuple(x for x in ALL if x not in ("huggingface_tf", "torchvision"))),
    ({"pooling": "gap"}, GAP),
    ({"pooling": "map"}, ("big_vision", "timm")),
    ({"representation_size": 5}, ("google", "big_vision", "torchvision")),
    (
        {"representation_size": 5, "num_classes": 0},
        ("google", "big_vision", *TRANSFORMERS, "torchvision"),
    ),
    ({"position_embedding": "sincos2d"}, ALL),
    ({"position_embedding": "sincos2d", "pooling": "gap"}, GAP),
    ({"qkv_bias": False, **GELU}, ("timm", "huggingface", "huggingface_vit_msn")),
    ({"qk_norm": True, **GELU}, ("timm",)),
    ({"layer_scale": 0.1, **GELU}, ("timm",)),
    ({"num_registers": 2, **GELU}, ("timm",)),
    ({"pre_norm": True, **GELU}, ("timm",)),
    ({"pooling": "gap", "fc_norm": True, **GELU}, ("timm",)),
    ({"pooling": "gap", "class_token": True, **GELU}, ("timm",)),
    ({"key_bias": False, **GELU}, ()),
    ({"pooling": "map", "num_classes": 0}, ("big_vision", "timm", *SIGLIP)),
    ({"pooling": "token_gap", "layer_scale": 0.1, **GELU}, ("huggingface_dinov2", DINOV2)),
    ({**TOWERS["dinov2_giant"], "epsilon": 1e-6}, (DINOV2,)),
    ({"pooling": "token_gap", "layer_scale": 0.1, "image_size": (8, 24), **GELU}, ()),
    ({"pooling": "token_gap", "layer_scale": 0.1, "patch_size": (4, 8), **GELU}, ()),
    ({**TOWERS["dinov3"], "num_classes": 0}, ("huggingface_dinov3_vit", "timm_eva")),
    ({**TOWERS["dinov3"]}, ("timm_eva",)),
    ({**TOWERS["dinov3"], **RELU, "num_classes": 0}, ("huggingface_dinov3_vit",)),
    ({"distillation_token": True, **GELU}, ("timm", "huggingface_deit")),
    ({"distillation_token": True, "num_registers": 1, **GELU}, ()),
    ({"distillation_token": True, "num_classes": 0, **GELU}, ()),
    ({**TOWERS["clip"], "num_classes": 0}, ("huggingface_clip",)),
    ({**TOWERS["clip"], "num_classes": 0, "image_size": (8, 24)}, ()),
    ({"pooling": "map", "num_classes": 0, "image_size": (8, 24)}, ("big_vision", "timm")),
    (TOWERS["clip_classifier"], ("timm", "huggingface_clip")),
    ({"pooling": None, "num_classes": 0}, ()),
    ({"position_embedding": "learned2d"}, ()),
    ({"position_embedding": "none"}, ()),
    ({"classifier_activation": "softmax"}, ()),
    ({"unit_norm": True}, ()),
    *((options, ()) for options in ABLATIONS.values()),
    ({"patch_size": 1, "resnet_stages": (1, 1), "resnet_width": 32}, ("google",)),
    ({"preactivation": True}, ("big_transfer",)),
    ({"preactivation": False}, ("big_vision",)),
]


def rows():
    """By default those that are the first to write a layout, and those that none can write."""
    written = set()
    for options, formats in OPTIONS:
        is_slow = formats and written.issuperset(formats)
        written.update(formats)
        yield pytest.param(options, formats, marks=[pytest.mark.slow] if is_slow else [])


def random_resnet(options):
    model = resnet((1,), 32, num_classes=3, image_size=32, **options)
    randomise(model)
    return model


@pytest.mark.parametrize(("options", "formats"), [*rows()], ids=str)
def test_same_logits_or_refused(options, formats, tmp_path):
    model = random_resnet(options) if "preactivation" in options else random_model(options)
    size = model.input_shape[1:3]
    inputs = images(2, *size, 3)
    logits = to_numpy(model(inputs))
    for format in written_formats():
        path = target(tmp_path, format)
        if format in formats or format in {FORMATS[name].family for name in formats}:
            save_checkpoint(model, path, format)
            given = {name: getattr(model.options, name) for name in UNRECORDED.get(format, ())}
            read = from_checkpoint(path, image_size=size, **given)
            np.testing.assert_allclose(to_numpy(read(inputs)), logits, rtol=0, atol=1e-5)
            read.set_weights([0 * weight for weight in read.get_weights()])
            load_checkpoint(read, path)
            np.testing.assert_allclose(to_numpy(read(inputs)), logits, rtol=0, atol=1e-5)
        else:
            with pytest.raises(ValueError, match="`model` must .* Received: "):
                save_checkpoint(model, path, format)
            assert not path.exists()


def test_big_vision_has_the_class_tokens_position_in_the_token(tmp_path):
    model = case_model("a_vit_token")
    save_checkpoint(model, tmp_path / "file.npz", "big_vision")
    arrays = arrays_of(tmp_path / "file.npz")
    assert arrays["params/pos_embedding"].shape == (1, 16, 48)


@pytest.mark.parametrize(
    ("options", "name", "format", "told"),
    [
        (GELU, "a.npz", "google", "activation: 'gelu' becomes 'gelu_tanh'"),
        ({"epsilon": 1e-12}, "a.npz", "google", "epsilon: 1e-12 becomes 1e-06"),
        (
            {"embedding_dim": 192, "num_heads": 2, **GELU},
            "a.safetensors",
            "timm",
            "num_heads: 2 becomes 3",
        ),
    ],
    ids=str,
)
def test_options_that_are_not_recorded_are_told(options, name, format, told, tmp_path, caplog):
    save_checkpoint(random_model(options), tmp_path / name, format)
    assert caplog.messages == [f"{format} files do not record {told} when the file is read"]


def test_thresholds_that_are_not_recorded_are_told(tmp_path, caplog):
    model = random_model(GELU)
    model.thresholds = [0.5] * model.output_shape[-1]
    save_checkpoint(model, tmp_path / "labels.safetensors", "timm")
    assert "sigmoid probabilities and `model.thresholds` are lost" in caplog.text


def test_files_of_other_projects_do_not_record_that_outputs_are_values(tmp_path, caplog):
    model = random_model(GELU)
    model.predicts_values = True
    save_checkpoint(model, tmp_path / "values.safetensors", "timm")
    assert "does not record that the model predicts values" in caplog.text


def test_heads_that_weights_alone_do_not_record_must_be_given(tmp_path):
    """With another number the same arrays are another model."""
    path = tmp_path / "file.safetensors"
    save_checkpoint(case_model("timm_token"), path)
    assert_same_bits(path, case_path("timm_token"))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        from_checkpoint(path)
    assert from_checkpoint(path, num_heads=4).get_layer("block_0").num_heads == 4


@pytest.mark.skipif(os.name != "posix", reason="other systems have other permissions")
@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_usual_permissions(mask, expected, tmp_path):
    model, old_mask = case_model("hf_classifier"), os.umask(mask)
    try:
        for format in ("google", "timm", "huggingface"):
            save_checkpoint(model, target(tmp_path, format), format)
        save_checkpoint(model, tmp_path / "model.safetensors", "timm")
    finally:
        os.umask(old_mask)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {expected}


@pytest.mark.parametrize("format", ["google", "timm"])
def test_a_grid_that_the_file_would_not_tell_is_refused(format, tmp_path):
    """4 x 9 patches would be read as 6 x 6."""
    model = random_model({"image_size": (16, 36), "pooling": "gap"})
    path = tmp_path / ("file.npz" if format == "google" else "file.safetensors")
    with pytest.raises(ValueError, match=r"a model with image_size=\(16, 36\)"):
        save_checkpoint(model, path, format)
    save_checkpoint(model, tmp_path / "directory", "timm")
    assert from_checkpoint(tmp_path / "directory").input_shape == (None, 16, 36, 3)


def test_weights_next_to_the_shards_of_another_model_are_not_read(tmp_path):
    model, index = case_model("hf_classifier"), tmp_path / "model.safetensors.index.json"
    save_checkpoint(model, tmp_path, "huggingface")
    index.write_text(json.dumps({"weight_map": {"classifier.bias": "model.safetensors"}}))
    with pytest.raises(ValueError, match="without model.safetensors or without .*index.json"):
        from_checkpoint(tmp_path)
    assert unchanged(from_checkpoint(tmp_path / "model.safetensors"), model.get_weights())


IN_TIMM = ImageSpec("bicubic", True, 0.875, True, rounds_offset=True)
IN_TRANSFORMERS = ImageSpec("bicubic", True, 0.875, True)
# The model's `ImageSpec`, the format, and what its files cannot say.
LOST = [
    (ImageSpec(), "timm", "antialias=False becomes True"),
    (ImageSpec(), "huggingface", "antialias=False becomes True"),
    (ImageSpec(), "google", None),
    (IN_TIMM, "timm", None),
    (IN_TIMM, "huggingface", "rounds_offset=True becomes False"),
    (IN_TIMM, "big_vision", "interpolation='bicubic' becomes 'bilinear', antialias=True becomes"),
    (IN_TRANSFORMERS, "huggingface", None),
    (IN_TRANSFORMERS, "timm", "rounds_offset=False becomes True"),
    # Where all images have one size before the crop: 18 pixels, of which the second is the first
    # that is kept; or 19, of which it is the second or, rounded, the third.
    (ImageSpec("bicubic", True, 0.875), "timm", None),
    (ImageSpec("bicubic", True, 0.84), "timm", "rounds_offset=False becomes True"),
    (ImageSpec("bilinear", True, 0.875, True, rounds_offset=True), "torchvision", None),
    (IN_TIMM, "torchvision", "interpolation='bicubic' becomes 'bilinear'"),
]


@pytest.mark.parametrize(("image_spec", "format", "lost"), LOST)
def test_what_a_format_cannot_say_of_images_is_logged(image_spec, format, lost, tmp_path, caplog):
    model = random_model({**GELU, "epsilon": 1e-12 if format == "huggingface" else 1e-6})
    model.image_spec = image_spec
    suffix = FORMATS[format].suffix * (not FORMATS[format].config_files)
    save_checkpoint(model, tmp_path / f"model{suffix}", format)
    logged = [line for line in caplog.messages if "how this model's images are resized" in line]
    assert [lost in line for line in logged] == [True] * bool(lost)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_files_are_float32(dtype, tmp_path):
    save_checkpoint(random_model({"dtype": dtype}), tmp_path / "file.npz", "google")
    assert {array.dtype.name for array in arrays_of(tmp_path / "file.npz").values()} == {"float32"}


@pytest.mark.parametrize("format", ["google", "big_vision"])
def test_a_grid_that_is_not_square_is_recorded(format, tmp_path):
    """The same number of patches fits 2 x 10 and 10 x 2; other readers see the arrays alone."""
    model, path = random_model({"image_size": (8, 40)}), tmp_path / "wide.npz"
    save_checkpoint(model, path, format)
    assert from_checkpoint(path).input_shape == (None, 8, 40, 3)
    load_checkpoint(model, path)
    tall = random_model({"image_size": (40, 8)})
    before = tall.get_weights()
    with pytest.raises(ValueError, match=r"grid of \(10, 2\) patches.*, with \(2, 10\)"):
        load_checkpoint(tall, path)
    assert unchanged(tall, before)
    np.savez(tmp_path / "plain.npz", **arrays_of(path))
    assert_same_bits(path, tmp_path / "plain.npz")
    with pytest.raises(ValueError, match="`image_size` must be that of the file"):
        from_checkpoint(tmp_path / "plain.npz")


@pytest.mark.parametrize("comment", [b"made by hand", b'{"image_size": [40, 8]}'])
def test_the_comment_of_another_program_is_no_record(comment, tmp_path):
    path = tmp_path / "wide.npz"
    save_checkpoint(random_model({"image_size": (8, 40)}), path, "google")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment
    assert from_checkpoint(path, image_size=(8, 40)).input_shape == (None, 8, 40, 3)
    with pytest.raises(ValueError, match="`image_size` must be that of the file"):
        from_checkpoint(path)
