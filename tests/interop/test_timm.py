"""Files of and for the real timm."""

import numpy as np
import pytest
import safetensors.torch
import torch
from keras import ops

import keras_vit
from tests.fixtures.peers.torch_models import IMAGES, TOLERANCE, check, randomise, torch_images
from tests.fixtures.reference import case_model, case_outputs

SMALL = {
    "img_size": (32, 48),
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 3,
    "num_heads": 4,
    "mlp_ratio": 1.7,
    "num_classes": 10,
}
MODELS = {
    "token": {},
    "deit3": {"no_embed_class": True, "init_values": 1e-6},
    "gap_with_fc_norm": {"global_pool": "avg", "class_token": False},
    "gap_with_class_token": {"global_pool": "avg"},
    "gap_with_norm": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    "registers": {"reg_tokens": 4, "no_embed_class": True, "init_values": 1e-5},
    "registers_with_positions": {"reg_tokens": 4},
    "gap_with_registers": {"global_pool": "avg", "class_token": False, "reg_tokens": 1},
    "layer_scale": {"init_values": 0.1},
    "qk_norm": {"qk_norm": True},
    "pre_norm": {"pre_norm": True},
    "no_qkv_bias": {"qkv_bias": False},
    "map": {"global_pool": "map", "class_token": False},
    "map_with_class_token": {"global_pool": "map", "reg_tokens": 2},
    "no_head": {"num_classes": 0},
    "tanh_gelu": {"act_layer": "gelu_tanh"},
    "quick_gelu": {"act_layer": "quick_gelu", "pre_norm": True},
}
# What no array tells, and only a configuration does.
UNTOLD = ("tanh_gelu", "quick_gelu")


def theirs_of(timm, name, **changes):
    arguments = {**SMALL, **MODELS[name], **changes}
    return randomise(timm.create_model("vit_base_patch16_224", **arguments))


def logits_of(model, images=IMAGES):
    with torch.no_grad():
        return model(torch_images(images)).numpy()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in UNTOLD])
def test_weights_alone(timm, name, tmp_path):
    # 5 x 5 rows of a model with LayerScale, as DeiT III is, are 5 x 5 patches and not 4 x 6 behind
    # a class token; a configuration tells them apart.
    size = (32, 32) if name == "layer_scale" else (32, 48)
    theirs = theirs_of(timm, name, img_size=size)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(theirs.state_dict(), path)
    ours = keras_vit.from_checkpoint(path, num_heads=4, image_size=size)
    images = IMAGES[:, :, : size[1]]
    check(ours, logits_of(theirs, images), images)


@pytest.mark.parametrize("name", MODELS)
def test_read_and_written_back(timm, name, tmp_path):
    theirs = theirs_of(timm, name)
    expected = logits_of(theirs)
    timm.models.save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    check(ours, expected)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    np.testing.assert_array_equal(logits_of(again), expected)
    for key, tensor in theirs.state_dict().items():
        torch.testing.assert_close(again.state_dict()[key], tensor, rtol=0, atol=0)


def check_reference(theirs, case):
    """timm's model computes the logits of the original."""
    reference = case_outputs(case)
    logits = logits_of(theirs.eval(), reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["a_vit_token", "i1_bv_gap_learn", "i3_bv_map_learn"])
def test_models_of_google(timm, case, tmp_path):
    keras_vit.save_checkpoint(case_model(case), tmp_path, format="timm")
    check_reference(timm.create_model(f"local-dir:{tmp_path}", pretrained=True), case)


def test_google_files_of_ours_are_read(timm, tmp_path):
    """timm's own loader of Google's `.npz`."""
    model = case_model("a_vit_token")
    keras_vit.save_checkpoint(model, tmp_path / "google.npz", format="google")
    theirs = timm.create_model(
        "vit_base_patch16_224",
        **{**SMALL, "img_size": 32, "mlp_ratio": 2, "act_layer": "gelu_tanh"},
    )
    theirs.load_pretrained(str(tmp_path / "google.npz"))
    check_reference(theirs, "a_vit_token")


def test_resized_as_timm_does_it(timm, tmp_path):
    theirs = theirs_of(timm, "token", img_size=32)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(theirs.state_dict(), path)
    theirs.set_input_size((48, 64))
    images = np.random.default_rng(1).normal(size=(2, 48, 64, 3)).astype("float32")
    ours = keras_vit.from_checkpoint(path, num_heads=4, image_size=(48, 64))
    check(ours, logits_of(theirs, images), images)


@pytest.mark.parametrize(
    "changes",
    [
        {"global_pool": "max"},
        {"global_pool": "avgmax", "class_token": False},
        {"global_pool": "token", "fc_norm": True},
        {"global_pool": "avg", "pool_include_prefix": True},
    ],
    ids=str,
)
def test_other_poolings_are_refused(timm, changes, tmp_path):
    theirs = theirs_of(timm, "token", **changes)
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    with pytest.raises(ValueError, match="`global_pool` of the file's config.json must be"):
        keras_vit.from_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "beit_base_patch16_224"])
def test_other_models_are_refused(timm, name, tmp_path):
    small = {"img_size": 28, "embed_dim": 48, "depth": 1, "num_heads": 4}
    theirs = timm.create_model(name, **small, patch_size=14)
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    with pytest.raises(ValueError, match="gated MLPs are SwiGLUs|rotary positions of DINOv3"):
        keras_vit.from_checkpoint(tmp_path)


def test_names_of_classes(timm, tmp_path):
    names = [f"class {index}" for index in range(10)]
    keras_vit.save_checkpoint(case_model("timm_token"), tmp_path, "timm", names)
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    assert model.pretrained_cfg["label_names"] == names


def test_the_recorded_grid_of_an_npz_does_not_disturb(timm, tmp_path):
    ours = keras_vit.ViT_Ti16(num_classes=3, image_size=(32, 160))
    keras_vit.save_checkpoint(ours, tmp_path / "wide.npz", "google")
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=3, img_size=(32, 160))
    theirs.load_pretrained(str(tmp_path / "wide.npz"))
    table = ops.convert_to_numpy(ours.get_layer("position_embedding").embedding.value)
    np.testing.assert_array_equal(theirs.pos_embed.detach().numpy(), table)
