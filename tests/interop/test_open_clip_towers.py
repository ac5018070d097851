"""Image towers of the real open_clip, with random weights."""

import functools

import numpy as np
import open_clip
import pytest
import safetensors.torch
import torch
from open_clip.push_to_hf_hub import save_config_for_hf

import keras_vit
from tests.fixtures.peers.torch_models import check, randomise, torch_images

MEAN, DEVIATION = np.array([0.4, 0.5, 0.45]), np.array([0.25, 0.3, 0.2])
TOWER = {"image_size": 32, "layers": 3, "width": 48, "head_width": 12, "patch_size": 8}
TEXT = {"context_length": 8, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}
IMAGES = np.random.default_rng(0).uniform(-1, 1, size=(2, 32, 32, 3)).astype("float32")
CLIPA = {"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}
TOWERS = [
    *({}, {"mlp_ratio": 2.5}, {"pool_type": "avg"}, CLIPA, {"ls_init_value": 0.1}),
    *({"final_ln_after_pool": True}, {"pos_embed_type": "sin_cos_2d"}),
    {"image_size": (32, 48), "patch_size": (8, 16)},
]
SIGLIP = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
CLIP = "vit_base_patch16_clip_224"
TIMM_TOWERS = [
    {**SIGLIP, "timm_proj": "none"},
    {**SIGLIP, "timm_proj": "linear"},
    {"timm_model_name": CLIP, "timm_pool": "token", "timm_proj": None},
    {"timm_model_name": CLIP, "timm_pool": "avg", "timm_proj": "linear"},
    {"timm_model_name": "vit_medium_patch16_gap_256", "timm_proj": "linear"},
]


def theirs_of(vision, cls=open_clip.CLIP, quick_gelu=False):
    config = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": TEXT, "quick_gelu": quick_gelu}
    model = randomise(cls(**config))
    model.visual.image_mean, model.visual.image_std = MEAN.tolist(), DEVIATION.tolist()
    return model, config


def write(model, config, folder):
    """Write the files of `push_to_hf_hub`, without a tokenizer."""
    safetensors.torch.save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    save_config_for_hf(model, folder / "open_clip_config.json", config)


def outputs_of(model, images=IMAGES):
    normalized = (((images + 1) / 2 - MEAN) / DEVIATION).astype("float32")
    with torch.no_grad():
        return model.encode_image(torch_images(normalized)).numpy()


@pytest.mark.parametrize("quick_gelu", [False, True])
@pytest.mark.parametrize("cls", [open_clip.CLIP, open_clip.CustomTextCLIP])
def test_files_of_both_towers(cls, quick_gelu, tmp_path):
    theirs, config = theirs_of(TOWER, cls, quick_gelu)
    write(theirs, config, tmp_path)
    check(keras_vit.from_checkpoint(tmp_path), outputs_of(theirs), IMAGES)


@pytest.mark.parametrize("changes", TOWERS, ids=str)
def test_towers(changes, tmp_path):
    theirs, config = theirs_of({**TOWER, **changes})
    write(theirs, config, tmp_path)
    height, width = theirs.visual.image_size
    images = np.random.default_rng(1).uniform(-1, 1, size=(2, height, width, 3)).astype("float32")
    check(keras_vit.from_checkpoint(tmp_path), outputs_of(theirs, images), images)


def test_other_image_sizes(tmp_path):
    theirs, config = theirs_of(TOWER)
    write(theirs, config, tmp_path)
    larger, _ = theirs_of({**TOWER, "image_size": 64})
    state = theirs.state_dict()
    open_clip.model.resize_pos_embed(state, larger)
    larger.load_state_dict(state)
    images = np.random.default_rng(1).uniform(-1, 1, size=(2, 64, 64, 3)).astype("float32")
    ours = keras_vit.from_checkpoint(tmp_path, image_size=64)
    check(ours, outputs_of(larger, images), images)


@pytest.fixture
def small_timm(timm, monkeypatch):
    """Towers of timm have no sizes of their own in open_clip."""
    monkeypatch.setattr(timm, "create_model", functools.partial(timm.create_model, **SMALL))


@pytest.mark.parametrize("tower", TIMM_TOWERS, ids=str)
def test_towers_of_timm(tower, small_timm, tmp_path):
    theirs, config = theirs_of({"image_size": 32, **tower}, open_clip.CustomTextCLIP)
    write(theirs, config, tmp_path)
    check(keras_vit.from_checkpoint(tmp_path, num_heads=4), outputs_of(theirs), IMAGES)


@pytest.mark.parametrize(
    ("tower", "message"),
    [
        ({**SIGLIP, "timm_proj": "mlp"}, r"unused: .*visual\.head\.mlp"),
        ({**SIGLIP, "timm_proj": "linear", "timm_proj_bias": True}, r"visual\.head\.proj\.bias"),
        ({**TOWER, "attentional_pool": True}, r"unused: .*visual\.attn_pool"),
        ({**TOWER, "qk_norm": True}, r"unused: .*attn\.ln_q"),
        ({**TOWER, "layers": [1, 1, 1, 1], "width": 16}, "ResNet of a known layout"),
    ],
    ids=str,
)
def test_other_towers_are_refused(tower, message, small_timm, tmp_path):
    theirs, config = theirs_of(tower, open_clip.CustomTextCLIP)
    write(theirs, config, tmp_path)
    with pytest.raises(ValueError, match=message):
        keras_vit.from_checkpoint(tmp_path, num_heads=4)
