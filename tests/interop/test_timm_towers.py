"""Models of timm other than its plain ViTs, with random weights, in both directions."""

import numpy as np
import pytest
import torch
from keras import ops

import keras_vit
from tests.fixtures.contract import randomise as randomise_ours
from tests.fixtures.peers.torch_models import TOLERANCE, check, randomise, torch_images

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}
IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
CASES = {
    "vit_small_patch14_dinov2": [{}, {"num_classes": 3}],
    "vit_small_patch14_reg4_dinov2": [{}, {"num_classes": 5, "global_pool": "avg"}],
    "vit_giant_patch14_dinov2": [{}, {"num_classes": 3, "qkv_bias": False}],
    "vit_giant_patch14_reg4_dinov2": [{}],
    "vit_small_patch16_dinov3": [{}, {"num_classes": 3, "global_pool": "token"}],
    "vit_small_patch16_dinov3_qkvb": [
        {"global_pool": "token"},
        {"num_classes": 3, "use_fc_norm": True},
    ],
    "vit_small_plus_patch16_dinov3": [{"global_pool": "token"}],
    "vit_7b_patch16_dinov3": [{"num_classes": 3}],
    "vit_small_patch16_lingbot": [{}],
    "deit_base_distilled_patch16_224": [{"num_classes": 3}, {"num_classes": 4, "qkv_bias": False}],
    "vit_base_patch16_clip_224": [{"num_classes": 16}, {}],
    "vit_base_patch16_clip_quickgelu_224": [{"num_classes": 16}],
    "vit_base_patch16_siglip_224": [{}, {"num_classes": 3}],
    "vit_base_patch16_siglip_gap_224": [{}],
    # The encoder of MAE, and MSN, are plain ViTs.
    "vit_base_patch16_224": [{}, {"num_classes": 3, "final_norm": False}],
}


def theirs_of(timm, name, changes):
    """A model, and its function of images in [-1, 1]."""
    model = randomise(timm.create_model(name, **{**SMALL, "num_classes": 0, **changes}))
    return model, lambda images=IMAGES: outputs_of(model, images)


def outputs_of(model, images=IMAGES):
    mean, deviation = (np.array(model.pretrained_cfg[name]) for name in ("mean", "std"))
    normalized = (((images + 1) / 2 - mean) / deviation).astype("float32")
    with torch.no_grad():
        return model(torch_images(normalized)).numpy()


def save(timm, model, changes, directory):
    arguments = {key: value for key, value in {**SMALL, **changes}.items() if key != "num_classes"}
    timm.models.save_for_hf(model, directory, safe_serialization=True, model_args=arguments)


ALL = [pytest.param(n, c, id=f"{n}-{c}") for n, changes in CASES.items() for c in changes]


@pytest.mark.parametrize(("name", "changes"), ALL)
def test_read_and_written_back(timm, name, changes, tmp_path):
    theirs, function = theirs_of(timm, name, changes)
    save(timm, theirs, changes, tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    actual = ops.convert_to_numpy(ours(IMAGES))
    np.testing.assert_allclose(actual, function(), rtol=0, atol=2 * TOLERANCE)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    np.testing.assert_allclose(outputs_of(again), function(), rtol=0, atol=TOLERANCE)
    states = theirs.state_dict(), again.state_dict()
    assert states[0].keys() == states[1].keys()
    for key, tensor in states[0].items():
        torch.testing.assert_close(states[1][key], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3"])
def test_other_image_sizes(timm, name, tmp_path):
    theirs, function = theirs_of(timm, name, {})
    save(timm, theirs, {}, tmp_path)
    images = np.random.default_rng(1).normal(size=(2, 48, 40, 3)).astype("float32")
    theirs.set_input_size((48, 40))
    check(keras_vit.from_checkpoint(tmp_path, image_size=(48, 40)), function(images), images)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("small_patch16_dinov3", {"rope_temperature": 1e3}, "of DINOv3.*rope_temperature=1000.0"),
        ("small_patch16_dinov3", {"rope_rotate_half": False}, "of DINOv3.*rope_rotate_half=False"),
        ("small_patch16_dinov3", {"qkv_fused": False}, "unused: 'blocks.0.attn.k_proj.w"),
        ("small_patch16_dinov3", {"global_pool": ""}, "`global_pool` .*global_pool=''"),
    ],
)
def test_other_functions_are_refused(timm, name, changes, message, tmp_path):
    theirs, _ = theirs_of(timm, f"vit_{name}", changes)
    save(timm, theirs, changes, tmp_path)
    with pytest.raises(ValueError, match=message):
        keras_vit.from_checkpoint(tmp_path)


def test_other_rotary_positions_are_refused(timm, tmp_path):
    changes = {"init_values": 0.1, "use_abs_pos_emb": False}
    theirs, _ = theirs_of(timm, "eva02_tiny_patch14_224", changes)
    save(timm, theirs, changes, tmp_path)
    with pytest.raises(ValueError, match="of DINOv3. Received: architecture='eva02_t"):
        keras_vit.from_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "options", [{"epsilon": 1e-5}, {"position_embedding": "sincos2d"}], ids=str
)
def test_distilled_models_of_other_options(timm, options, tmp_path):
    """timm's class has positions of both tokens, and one epsilon."""
    changes = {"distillation_token": True, "activation": "gelu", **options}
    ours = keras_vit.ViT_Ti16(num_classes=3, image_size=32, **changes)
    randomise_ours(ours)
    keras_vit.save_checkpoint(ours, tmp_path, format="timm")
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        actual = theirs(torch_images(IMAGES)).numpy()
    ours = keras_vit.from_checkpoint(tmp_path)
    assert ours.options.epsilon == 1e-6
    np.testing.assert_allclose(actual, ops.convert_to_numpy(ours(IMAGES)), rtol=0, atol=5e-5)


def test_from_transformers_to_timm(timm, tmp_path):
    """DINOv2 with registers: timm stores positions of the patches only."""
    import transformers

    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    theirs = randomise(transformers.Dinov2WithRegistersModel(config))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    keras_vit.save_checkpoint(ours, tmp_path / "timm", format="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'timm'}", pretrained=True).eval()
    with torch.no_grad():
        expected = theirs(torch_images(IMAGES)).pooler_output.numpy()
        actual = again(torch_images(IMAGES)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)
