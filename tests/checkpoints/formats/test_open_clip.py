"""Image towers of open_clip, and of OpenAI's CLIP."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import keras_vit
from keras_vit.checkpoints import from_checkpoint, save_checkpoint
from keras_vit.checkpoints.configuration import OPENAI
from keras_vit.core.image_spec import ImageSpec
from tests.fixtures.checkpoint_files import arrays_of, random_model
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import LOGITS_TOLERANCE, REFERENCE, assert_logits, case_outputs
from tests.fixtures.tiny import images

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")

CASE = "open_clip_vit"
FILE = "open_clip_model.safetensors"
OPENAI_IMAGES = ImageSpec(
    *("bicubic", True),
    keeps_aspect_ratio=True,
    rounds_offset=True,
    mean=OPENAI[0],
    deviation=OPENAI[1],
)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(REFERENCE / CASE, tmp_path / CASE)


def configure(folder, part, settings):
    config = json.loads((folder / "open_clip_config.json").read_text())
    (config["model_cfg"] if part == "vision_cfg" else config)[part] |= settings
    (folder / "open_clip_config.json").write_text(json.dumps(config))


def assert_embeds(model):
    reference = case_outputs(CASE)
    assert_logits(to_numpy(model(reference["images"])), reference["image_embeds"])


def test_a_directory(caplog):
    assert_embeds(from_checkpoint(REFERENCE / CASE))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("option", [{"activation": "gelu"}, {"epsilon": 1e-2}], ids=str)
def test_other_conventions_give_other_outputs(option):
    reference = case_outputs(CASE)
    model = from_checkpoint(REFERENCE / CASE, **option)
    difference = to_numpy(model(reference["images"])) - reference["image_embeds"]
    assert np.abs(difference).max() > LOGITS_TOLERANCE


@pytest.mark.parametrize("prefix", ["visual.", ""])
def test_the_image_tower_alone(prefix, folder):
    arrays = arrays_of(folder / FILE)
    tower = {
        prefix + name.removeprefix("visual."): array
        for name, array in arrays.items()
        if name.startswith("visual.")
    }
    safetensors.numpy.save_file(tower, folder / FILE)
    assert_embeds(from_checkpoint(folder))


def test_weights_alone_are_read_as_those_of_openai(folder, caplog):
    (folder / "open_clip_config.json").unlink()
    # TorchScript archives have such numbers.
    arrays = {**arrays_of(folder / FILE), "input_resolution": np.array(32)}
    safetensors.numpy.save_file(arrays, folder / FILE)
    model = from_checkpoint(folder / FILE, num_heads=2)
    assert_embeds(model)
    assert model.image_spec == OPENAI_IMAGES
    assert "which are assumed: activation=quick_gelu" in caplog.text
    assert "mean and deviation default to (0.48145466, " in caplog.text


def test_files_of_transformers_in_the_same_directory(folder):
    (folder / "config.json").write_text('{"model_type": "clip"}')
    (folder / "preprocessor_config.json").write_text('{"do_normalize": false}')
    assert_embeds(from_checkpoint(folder))


def test_files_with_names_of_the_user(folder):
    (folder / FILE).rename(folder / "epoch_32.safetensors")
    assert_embeds(from_checkpoint(folder / "epoch_32.safetensors"))


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        ({}, {"keeps_aspect_ratio": True}),
        ({"resize_mode": "squash"}, {"keeps_aspect_ratio": False}),
        ({"interpolation": "bilinear"}, {"interpolation": "bilinear"}),
        ({"interpolation": "random"}, {"interpolation": "bicubic"}),
        ({"mean": [0.5] * 3, "std": [0.25] * 3}, {"mean": (0.5,) * 3, "deviation": (0.25,) * 3}),
        ({"mean": None, "std": None}, {"mean": OPENAI[0], "deviation": OPENAI[1]}),
    ],
    ids=str,
)
def test_preprocessing(settings, spec, folder):
    configure(folder, "preprocess_cfg", settings)
    actual = from_checkpoint(folder).image_spec
    assert {name: getattr(actual, name) for name in spec} == spec


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("vision_cfg", {"width": 64}, "`width` .* must be that of its arrays, 32"),
        ("vision_cfg", {"layers": 3}, "`layers` .* must be that of its arrays, 2"),
        ("vision_cfg", {"pool_type": "none"}, "`pool_type` .* 'tok' or 'avg'"),
        ("vision_cfg", {"act_kwargs": {"approximate": "tanh"}}, "act_kwargs={'approximate': 'tan"),
        ("vision_cfg", {"norm_kwargs": {"eps": 1e-6}}, "norm_kwargs={'eps': 1e-06}"),
        ("model_cfg", {"embed_dim": 8}, "`embed_dim` .* must be that of its arrays, 24"),
        ("preprocess_cfg", {"resize_mode": "longest"}, "`resize_mode` of open_clip_config.json"),
    ],
    ids=str,
)
def test_settings_of_other_models_are_refused(part, settings, message, folder):
    configure(folder, part, settings)
    with pytest.raises(ValueError, match=message):
        from_checkpoint(folder)


def test_settings_that_are_no_object_are_refused(folder):
    (folder / "open_clip_config.json").write_text('{"model_cfg": 3}')
    with pytest.raises(ValueError, match="`model_cfg` of .* must be a JSON object"):
        from_checkpoint(folder)


def test_pooling_with_attention_is_refused(folder):
    arrays = arrays_of(folder / FILE)
    arrays["visual.attn_pool.query"] = np.zeros((4, 32), "float32")
    safetensors.numpy.save_file(arrays, folder / FILE)
    with pytest.raises(ValueError, match=r"unused: 'visual\.attn_pool\.query'"):
        from_checkpoint(folder)


@pytest.mark.parametrize("projection", [True, False])
def test_towers_of_timm(projection, tmp_path):
    model = random_model({"activation": "gelu", "epsilon": 1e-6, "num_classes": 0})
    save_checkpoint(model, tmp_path / FILE, "timm")
    arrays = {f"visual.trunk.{name}": array for name, array in arrays_of(tmp_path / FILE).items()}
    arrays["text.cls_emb"] = np.zeros(3, "float32")
    batch = images(2, *model.input_shape[1:])
    expected = to_numpy(model(batch))
    if projection:
        kernel = np.random.default_rng(0).normal(size=(5, expected.shape[1])).astype("float32")
        arrays["visual.head.proj.weight"] = kernel
        expected = expected @ kernel.T
    safetensors.numpy.save_file(arrays, tmp_path / FILE)
    tower = {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "token"}
    images_of_ours = {"mean": [0.5] * 3, "std": [0.5] * 3}
    config = {"model_cfg": {"vision_cfg": tower}, "preprocess_cfg": images_of_ours}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    again = from_checkpoint(tmp_path, num_heads=model.options.num_heads)
    assert_logits(to_numpy(again(batch)), expected)


def test_towers_are_written_for_transformers(tmp_path):
    save_checkpoint(from_checkpoint(REFERENCE / CASE), tmp_path, "huggingface")
    assert_embeds(keras_vit.from_checkpoint(tmp_path))
