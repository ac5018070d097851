"""Models of the real timm, with random weights, in both directions."""

import numpy as np
import pytest
import safetensors.torch
import torch
from keras import ops

import keras_vit
from tests.fixtures.contract import randomise as randomise_ours
from tests.fixtures.peers.torch_models import TOLERANCE, check, randomise, torch_images
from tests.fixtures.reference import LOGITS_TOLERANCE, case_model, case_outputs

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}


def images_of(size):
    return np.random.default_rng(0).normal(size=(2, *size, 3)).astype("float32")


IMAGES = images_of((32, 32))
PLAIN = {
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
    "mlp_ratio": {"mlp_ratio": 1.7, "img_size": (32, 48)},
}
# Settings that only a configuration records, and no array.
UNTOLD = [{"act_layer": "gelu_tanh"}, {"act_layer": "quick_gelu", "pre_norm": True}]
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
    "vit_base_patch16_224": [
        *({"num_classes": 10, **changes} for changes in (*PLAIN.values(), *UNTOLD)),
        *({}, {"num_classes": 3, "final_norm": False}),
    ],
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
    images = images_of(theirs.patch_embed.img_size)
    expected = function(images)
    actual = ops.convert_to_numpy(ours(images))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2 * TOLERANCE)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    np.testing.assert_allclose(outputs_of(again, images), expected, rtol=0, atol=TOLERANCE)
    states = theirs.state_dict(), again.state_dict()
    assert states[0].keys() == states[1].keys()
    # Another normalization of images than ours is absorbed by the patch projection.
    tolerance = 0 if set(theirs.pretrained_cfg["mean"]) == {0.5} else 1e-6
    for key, tensor in states[0].items():
        torch.testing.assert_close(states[1][key], tensor, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "name",
    ["vit_base_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3"],
)
def test_other_image_sizes(timm, name, tmp_path):
    theirs, function = theirs_of(timm, name, {})
    save(timm, theirs, {}, tmp_path)
    images = np.random.default_rng(1).normal(size=(2, 48, 40, 3)).astype("float32")
    theirs.set_input_size((48, 40))
    check(keras_vit.from_checkpoint(tmp_path, image_size=(48, 40)), function(images), images)


def original_arrays(model):
    """The arrays of a model under the names of Meta's repositories, which timm can read."""
    arrays = model.state_dict()
    is_dinov3 = "blocks.0.gamma_1" in arrays
    names = {"reg_token": "storage_tokens" if is_dinov3 else "register_tokens"}
    names |= {"gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma"}
    if is_dinov3 and "blocks.0.mlp.fc1_g.weight" in arrays:
        names |= {"mlp.fc1_g": "mlp.w1", "mlp.fc1_x": "mlp.w2", "mlp.fc2": "mlp.w3"}
    elif not is_dinov3 and len(arrays["blocks.0.mlp.fc1.bias"]) == 2 * len(model.norm.weight):
        names |= {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"}
    for old, new in names.items():
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    arrays["mask_token"] = arrays["cls_token"][0]
    if "register_tokens" in arrays:
        arrays["pos_embed"] = torch.cat([arrays["cls_token"], arrays["pos_embed"]], dim=1)
    for name in [name for name in arrays if name.endswith("q_bias")]:
        query, value = arrays.pop(name), arrays.pop(name.replace("q_bias", "v_bias"))
        # The mask removes the second third, which is the bias of the keys.
        arrays[name.replace("q_bias", "qkv.bias")] = torch.cat([query, 1 + query, value])
        mask = torch.cat([torch.ones_like(query), torch.zeros_like(query), torch.ones_like(query)])
        arrays[name.replace("q_bias", "qkv.bias_mask")] = mask
    return {name: array.clone() for name, array in arrays.items()}


@pytest.mark.parametrize(
    "name",
    [
        *("vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"),
        *("vit_giant_patch14_dinov2", "vit_giant_patch14_reg4_dinov2"),
        *("vit_small_patch16_dinov3_qkvb", "vit_small_plus_patch16_dinov3_qkvb"),
        "vit_7b_patch16_dinov3",
    ],
)
def test_original_names(timm, name, tmp_path):
    """Both packages read a file of Meta."""
    path, changes = str(tmp_path / "original.safetensors"), {"global_pool": "token"}
    theirs, _ = theirs_of(timm, name, changes)
    safetensors.torch.save_file(original_arrays(theirs), path)
    changes |= {"pretrained": True, "pretrained_cfg_overlay": {"file": path, "num_classes": 0}}
    theirs = timm.create_model(name, num_classes=0, **SMALL, **changes).eval()
    ours = keras_vit.from_checkpoint(path, num_heads=4, image_size=32)
    outputs = ops.convert_to_numpy(ours(IMAGES))
    np.testing.assert_allclose(outputs, outputs_of(theirs), rtol=0, atol=2 * TOLERANCE)


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


@pytest.mark.parametrize("name", PLAIN)
def test_weights_alone(timm, name, tmp_path):
    changes = {"num_classes": 10, **PLAIN[name]}
    theirs, function = theirs_of(timm, "vit_base_patch16_224", changes)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(theirs.state_dict(), path)
    size = theirs.patch_embed.img_size
    images = images_of(size)
    ours = keras_vit.from_checkpoint(path, num_heads=4, image_size=size)
    check(ours, function(images), images)


def check_reference(theirs, case):
    """timm's model computes the logits of the original."""
    reference = case_outputs(case)
    logits = outputs_of(theirs.eval(), reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["a_vit_token", "i1_bv_gap_learn", "i3_bv_map_learn"])
def test_models_of_google_are_read(timm, case, tmp_path):
    keras_vit.save_checkpoint(case_model(case), tmp_path, format="timm")
    check_reference(timm.create_model(f"local-dir:{tmp_path}", pretrained=True), case)


def test_google_files_of_ours_are_read(timm, tmp_path):
    """timm's own loader of Google's `.npz`."""
    model = case_model("a_vit_token")
    keras_vit.save_checkpoint(model, tmp_path / "google.npz", format="google")
    theirs = timm.create_model(
        "vit_base_patch16_224",
        **{**SMALL, "mlp_ratio": 2, "act_layer": "gelu_tanh", "num_classes": 10},
    )
    theirs.load_pretrained(str(tmp_path / "google.npz"))
    check_reference(theirs, "a_vit_token")


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
    theirs, _ = theirs_of(timm, "vit_base_patch16_224", changes)
    save(timm, theirs, changes, tmp_path)
    with pytest.raises(ValueError, match="`global_pool` of the file's config.json must be"):
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


def with_wide_kernels(model):
    """Random weights; kernels of a deviation near 1, where timm's other epsilons make no odds."""
    for index, weight in enumerate(model.weights):
        rng = np.random.default_rng(index)
        values = rng.normal(size=weight.shape)
        if "conv" not in weight.path:
            values *= 0.05
        weight.assign(values + 1 if weight.name == "gamma" else values)
    return model


@pytest.mark.parametrize(
    ("builder", "options", "format", "name", "timm_options"),
    [
        ("BiT_R50x1", {}, "big_transfer", "resnetv2_50x1_bit", {}),
        ("R26_S32", {"activation": "gelu"}, "google", "vit_small_r26_s32_224", {"img_size": 64}),
        ("R_Ti16", {"activation": "gelu"}, "google", "vit_tiny_r_s16_p8_224", {"img_size": 64}),
    ],
)
def test_timm_reads_hybrids_and_bit(timm, builder, options, format, name, timm_options, tmp_path):
    model = getattr(keras_vit, builder)(num_classes=10, image_size=64, **options)
    with_wide_kernels(model)
    keras_vit.save_checkpoint(model, tmp_path / "file.npz", format)
    theirs = timm.create_model(name, num_classes=10, **timm_options).eval()
    theirs.load_pretrained(str(tmp_path / "file.npz"))
    images = np.random.default_rng(0).uniform(-1, 1, size=(2, 64, 64, 3)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch_images(images)).numpy()
    logits = ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=LOGITS_TOLERANCE)


SIZES = [(8, 8), (32, 32), (14, 14), (12, 24), (7, 30)]


@pytest.mark.parametrize("patch_size", SIZES, ids=str)
@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_kernels_of_another_patch_size(timm, method, patch_size):
    # As large as trained kernels are: timm's pseudo-inverse is in float32.
    kernel = 0.1 * np.random.default_rng(0).normal(size=(16, 16, 3, 5)).astype("float32")
    expected = timm.layers.resample_patch_embed(
        torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()),
        patch_size,
        interpolation=method,
        antialias=method == "bicubic",
    )
    ours = keras_vit.resize_patch_kernel(kernel, patch_size, method)
    np.testing.assert_allclose(ours, expected.permute(2, 3, 1, 0).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("grid", [(4, 4), (12, 5), (16, 16)], ids=str)
def test_positions_of_another_grid(timm, grid):
    table = np.random.default_rng(0).normal(size=(1, 1 + 9 * 9, 6)).astype("float32")
    expected = timm.layers.resample_abs_pos_embed(
        torch.from_numpy(table), grid, interpolation="bilinear", antialias=True
    )
    ours = keras_vit.resize_position_embedding(table, grid, method="linear")
    np.testing.assert_allclose(ours, expected.numpy(), rtol=0, atol=1e-5)
