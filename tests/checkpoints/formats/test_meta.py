"""Files with the names of Meta's repositories, which are nearly those of timm."""

import re

import numpy as np
import pytest
import safetensors.numpy
from keras import Model, ops

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, save_checkpoint
from keras_vit.checkpoints.configuration import IMAGENET
from tests.fixtures.checkpoint_files import arrays_of, random_model
from tests.fixtures.models import TOWERS
from tests.fixtures.reference import assert_logits, case_model, case_outputs
from tests.fixtures.tiny import images

PLAIN = {"activation": "gelu", "epsilon": 1e-6, "num_classes": 0}
SCALED = {**PLAIN, "layer_scale": 1e-5}
GATED = {**SCALED, "gated_mlp": True, "activation": "silu"}
MASK_TOKEN = {"mask_token": (1, 8)}
CHUNKS = {r"blocks\.": "blocks.0."}
PACKED = {r"mlp\.fc1": "mlp.w12", r"mlp\.fc2": "mlp.w3"}
DINO = {"head.mlp.0.weight": (4, 8), "head.last_layer.weight_g": (9, 1)}
HEADS = {"dino_head.mlp.0.weight": (4, 8), "ibot_head.last_layer.weight_v": (9, 4)}
MAE = {"decoder_embed.weight": (6, 8), "decoder_blocks.0.norm1.bias": (6,), "mask_token": (1, 1, 6)}
MSN = {"fc.fc1.weight": (4, 8), "fc.bn1.num_batches_tracked": (), "prototypes": (3, 4)}
# Options of the model, new names of arrays of timm, and shapes of other arrays.
CASES = {
    "DINO with its head": (PLAIN, {}, DINO),
    "DINOv2": (SCALED, {}, MASK_TOKEN),
    "DINOv2 in training": (SCALED, CHUNKS, {**MASK_TOKEN, **HEADS}),
    "DINOv2 ViT-g": (GATED, PACKED, MASK_TOKEN),
    "MAE": (PLAIN, {}, MAE),
    "MSN": (PLAIN, {}, MSN),
}
# Files of these models have names of timm only.
PLAIN_CASES = {
    "DINO": (PLAIN, {}, {}),
    "DeiT": ({**PLAIN, "num_classes": 3, "distillation_token": True}, {}, {}),
    "DeiT III": (SCALED, {r"ls([12])\.gamma": r"gamma_\1"}, {}),
    "MAE, fine-tuned": ({**PLAIN, "num_classes": 3, "pooling": "gap", "fc_norm": True}, {}, {}),
}


def write_original(model, path, names, others, write_from="timm"):
    """Write a model under other names, next to other arrays; it takes images as for ImageNet."""
    folder = path.parent / "timm"
    save_checkpoint(model, folder, write_from, normalization=IMAGENET)
    arrays = {name: np.ones(shape, "float32") for name, shape in others.items()}
    for name, array in arrays_of(folder / "model.safetensors").items():
        for old, new in names.items():
            name = re.sub(old, new, name)
        arrays[name] = array
    safetensors.numpy.save_file(arrays, path)
    return arrays


def assert_same_outputs(model, path, **options):
    again = from_checkpoint(path, num_heads=model.options.num_heads, **options)
    batch = images(2, *model.input_shape[1:])
    outputs = (ops.convert_to_numpy(m(batch)) for m in (again, model))
    np.testing.assert_allclose(*outputs, rtol=0, atol=1e-5)
    return again


@pytest.mark.backends("tensorflow", "jax", "torch")
def test_outputs_of_dinov2():
    reference, model = case_outputs("dinov2_original"), case_model("dinov2_original")
    tokens = Model(model.input, model.get_layer("encoder_norm").output)(reference["images"])
    assert_logits(ops.convert_to_numpy(tokens), reference["last_hidden_state"])


@pytest.mark.parametrize("name", CASES)
def test_original_names(name, tmp_path):
    options, names, others = CASES[name]
    model, path = random_model(options), tmp_path / "original.safetensors"
    write_original(model, path, names, others)
    assert_same_outputs(model, path)


@pytest.mark.parametrize("name", PLAIN_CASES)
def test_names_of_timm(name, tmp_path):
    options, names, others = PLAIN_CASES[name]
    model, path = random_model(options), tmp_path / "original.safetensors"
    write_original(model, path, names, others)
    assert_same_outputs(model, path, format="meta")


def test_registers_of_dinov2_have_no_positions(tmp_path):
    model, path = random_model({**SCALED, "num_registers": 3}), tmp_path / "original.safetensors"
    arrays = write_original(model, path, {"reg_token": "register_tokens"}, MASK_TOKEN)
    table = arrays["pos_embed"]
    arrays["register_tokens"] += table[:, 1:4]
    arrays["pos_embed"] = np.delete(table, [1, 2, 3], axis=1)
    safetensors.numpy.save_file(arrays, path)
    assert_same_outputs(model, path)


DINOV3 = {**TOWERS["dinov3"], "num_classes": 0}
DINOV3_GATED = {**DINOV3, "gated_mlp": True, "activation": "silu"}
DINOV3_NAMES = {
    "reg_token": "storage_tokens",
    r"gamma_([12])": r"ls\1.gamma",
    r"mlp\.fc1_g": "mlp.w1",
    r"mlp\.fc1_x": "mlp.w2",
}
DINOV3_OTHERS = {**MASK_TOKEN, "rope_embed.periods": (1,)}


def write_dinov3(model, path):
    """Write a model as DINOv3 does, with packed biases whose middle third is masked."""
    names = dict(DINOV3_NAMES)
    if model.options.gated_mlp:
        names[r"mlp\.fc2"] = "mlp.w3"
    arrays = write_original(model, path, names, DINOV3_OTHERS, "timm_eva")
    for name in [name for name in arrays if name.endswith("q_bias")]:
        bias, query = name.replace("q_bias", "qkv.bias"), arrays.pop(name)
        value = arrays.pop(name.replace("q_bias", "v_bias"))
        arrays[bias] = np.concatenate([query, np.ones_like(query), value])
        arrays[f"{bias}_mask"] = np.full_like(arrays[bias], np.nan)
    safetensors.numpy.save_file(arrays, path)
    return arrays


@pytest.mark.parametrize(
    "options", [DINOV3, DINOV3_GATED, {**DINOV3_GATED, "qkv_bias": False}], ids=str
)
def test_dinov3(options, tmp_path):
    model, path = random_model(options), tmp_path / "original.safetensors"
    write_dinov3(model, path)
    assert_same_outputs(model, path, image_size=16)


def test_biases_without_a_mask_are_refused(tmp_path):
    path = tmp_path / "original.safetensors"
    arrays = write_dinov3(random_model(DINOV3), path)
    arrays = {name: array for name, array in arrays.items() if not name.endswith("_mask")}
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match="of a known layout"):
        from_checkpoint(path)


def test_weights_of_satellite_images_have_another_mean(tmp_path, caplog):
    path = tmp_path / "original.safetensors"
    arrays = write_dinov3(random_model(DINOV3), path)
    arrays |= {f"local_cls_norm.{name}": np.ones(8, "float32") for name in ("weight", "bias")}
    safetensors.numpy.save_file(arrays, path)
    model = from_checkpoint(path, num_heads=2)
    assert model.image_spec.normalization == IMAGENET
    assert "no file records how images are prepared" in caplog.text


def test_the_preparation_of_published_weights_is_known(caplog):
    model = case_model("dinov2_original")
    assert model.image_spec.normalization == IMAGENET
    assert "mean and deviation default to (0.485, 0.456, 0.406)" in caplog.text


def test_recorded_images_replace_those_of_the_layout(tmp_path):
    path = tmp_path / "original.safetensors"
    write_original(random_model(SCALED), path, {}, MASK_TOKEN)
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": 0.25, "image_std": 0.5}')
    assert from_checkpoint(path, num_heads=2).image_spec.mean == (0.25,)


def test_arrays_of_pretraining_are_listed(tmp_path):
    path = tmp_path / "original.safetensors"
    write_original(random_model(PLAIN), path, {}, MAE)
    assert sorted(inspect_checkpoint(path, num_heads=2).ignored) == sorted(MAE)


def test_a_classifier_of_msn_is_refused(tmp_path):
    path = tmp_path / "original.safetensors"
    write_original(random_model(PLAIN), path, {}, {**MSN, "fc.weight": (3, 8)})
    with pytest.raises(ValueError, match="unused: 'fc.weight'"):
        from_checkpoint(path, num_heads=2)
