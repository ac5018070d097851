"""Models of the real transformers, with random weights, in both directions."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import keras_vit
from keras_vit.checkpoints.formats.transformers.vit import VIT
from tests.fixtures.peers.torch_models import TOLERANCE, check, randomise, torch_images
from tests.fixtures.reference import case_model, case_outputs

PATCH = 8
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": PATCH}
SIZED = {**SMALL, "image_size": 32}
WIDE = {**SIZED, "intermediate_size": 96}
NAFLEX = {**SMALL, "intermediate_size": 96, "num_patches": 16}
TEXT = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 16, "vocab_size": 50, "max_position_embeddings": 5},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
LABELS = {"num_labels": 3}
# Class, configuration, and the layout that its files are recognized as.
CASES = {
    "ViTForImageClassification": [
        ("ViTConfig", {**WIDE, **LABELS}),
        ("ViTConfig", {**WIDE, **LABELS, "hidden_act": "gelu_pytorch_tanh"}),
        ("ViTConfig", {**WIDE, **LABELS, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-2}),
        ("ViTConfig", {**WIDE, **LABELS, "qkv_bias": False}),
        ("ViTConfig", {**WIDE, **LABELS, "num_attention_heads": 2, "patch_size": [8, 16]}),
    ],
    "ViTModel": [("ViTConfig", {**WIDE, "pooler_output_size": 20})],
    "Dinov2ForImageClassification": [
        ("Dinov2Config", {**SIZED, **LABELS}),
        ("Dinov2Config", {**SIZED, **LABELS, "use_swiglu_ffn": True, "layer_norm_eps": 1e-3}),
    ],
    "Dinov2Model": [
        ("Dinov2Config", {**SIZED, "hidden_act": "gelu_pytorch_tanh", "mlp_ratio": 2}),
        ("Dinov2Config", {**SIZED, "use_swiglu_ffn": True, "qkv_bias": False}),
    ],
    "Dinov2WithRegistersForImageClassification": [
        ("Dinov2WithRegistersConfig", {**SIZED, **LABELS, "num_register_tokens": 4}),
    ],
    "Dinov2WithRegistersModel": [
        ("Dinov2WithRegistersConfig", {**SIZED, "num_register_tokens": 2, "use_swiglu_ffn": True}),
        ("Dinov2WithRegistersConfig", {**SIZED, "num_register_tokens": 0, "hidden_act": "swish"}),
    ],
    "DINOv3ViTModel": [
        ("DINOv3ViTConfig", {**WIDE, "num_register_tokens": 4}),
        ("DINOv3ViTConfig", {**WIDE, "use_gated_mlp": True, "hidden_act": "silu"}),
        ("DINOv3ViTConfig", {**WIDE, "key_bias": True, "num_register_tokens": 1}),
        ("DINOv3ViTConfig", {**WIDE, "query_bias": False, "value_bias": False}),
    ],
    "DeiTForImageClassificationWithTeacher": [
        ("DeiTConfig", {**WIDE, **LABELS}),
        ("DeiTConfig", {**WIDE, "num_labels": 4, "hidden_act": "gelu_new", "qkv_bias": False}),
    ],
    "DeiTForImageClassification": [("DeiTConfig", {**WIDE, **LABELS})],
    "DeiTModel": [("DeiTConfig", {**WIDE, "layer_norm_eps": 1e-3, "pooler_output_size": 20})],
    "ViTMAEModel": [
        ("ViTMAEConfig", WIDE),
        ("ViTMAEConfig", {**WIDE, "qkv_bias": False, "layer_norm_eps": 1e-3}),
    ],
    "ViTMSNModel": [("ViTMSNConfig", WIDE)],
    "ViTMSNForImageClassification": [("ViTMSNConfig", {**WIDE, **LABELS, "hidden_act": "relu"})],
    "CLIPVisionModel": [("CLIPVisionConfig", WIDE)],
    "CLIPVisionModelWithProjection": [
        ("CLIPVisionConfig", {**WIDE, "projection_dim": 24}),
        ("CLIPVisionConfig", {**WIDE, "projection_dim": 24, "hidden_act": "gelu"}),
    ],
    "CLIPModel": [
        ("CLIPConfig", {"text_config": TEXT, "vision_config": WIDE, "projection_dim": 24}),
    ],
    "CLIPForImageClassification": [
        ("CLIPConfig", {"text_config": TEXT, "vision_config": WIDE, **LABELS}),
    ],
    "SiglipVisionModel": [
        ("SiglipVisionConfig", WIDE),
        ("SiglipVisionConfig", {**WIDE, "hidden_act": "gelu", "layer_norm_eps": 1e-3}),
    ],
    "SiglipModel": [("SiglipConfig", {"text_config": TEXT, "vision_config": WIDE})],
    "SiglipForImageClassification": [
        ("SiglipConfig", {"text_config": TEXT, "vision_config": WIDE, **LABELS}),
    ],
    "Siglip2VisionModel": [
        ("Siglip2VisionConfig", NAFLEX),
        ("Siglip2VisionConfig", {**NAFLEX, "hidden_act": "gelu"}),
    ],
    "Siglip2ForImageClassification": [
        ("Siglip2Config", {"text_config": TEXT, "vision_config": NAFLEX, **LABELS}),
    ],
}
# Only the image tower of a file with a text tower is read.
WRITTEN_AS = {"CLIPModel": "CLIPVisionModelWithProjection", "SiglipModel": "SiglipVisionModel"}
# What transformers has in addition, and no image needs.
UNUSED = ("mask_token", "text_model.", "logit_", "text_projection.", "post_layernorm.", "head.")


def theirs_of(name, config, settings):
    config = getattr(transformers, config)(**settings)
    return randomise(getattr(transformers, name)(config))


def outputs_of(model, images=IMAGES, **options):
    """The logits of a model, or the pooled output."""
    name, pixels = type(model).__name__, torch_images(images)
    if name.startswith("ViTMAE"):
        # It masks and shuffles the patches by random numbers.
        model.config.mask_ratio = 0.0
        patches = images.shape[1] * images.shape[2] // PATCH**2
        options["noise"] = torch.arange(patches).repeat(len(images), 1)
    if name.startswith("Siglip2"):
        pixels, options = naflex_inputs(images)
    run = model.get_image_features if name in WRITTEN_AS else model
    with torch.no_grad():
        outputs = run(pixels, **options)
    for kind in ("logits", "image_embeds", "pooler_output"):
        if getattr(outputs, kind, None) is not None:
            return getattr(outputs, kind).numpy()
    return outputs.last_hidden_state[:, 0].numpy()


def naflex_inputs(images):
    batch, height, width, channels = images.shape
    rows, columns = height // PATCH, width // PATCH
    patches = images.reshape(batch, rows, PATCH, columns, PATCH, channels)
    patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, -1)
    return torch.from_numpy(patches.copy()), {
        "pixel_attention_mask": torch.ones(batch, rows * columns, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[rows, columns]] * batch),
    }


def stored_arrays(directory):
    """The arrays of a file by the names that are the same in every version of transformers."""
    arrays = safetensors.torch.load_file(directory / "model.safetensors")
    prefixes = ("vision_model.", "vit.")
    named = {}
    for name, array in arrays.items():
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        if not any(part in name for part in UNUSED):
            named[name] = array
    return named


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        pytest.param(name, *case, id=f"{name}-{index}")
        for name, cases in CASES.items()
        for index, case in enumerate(cases)
    ],
)
def test_read_and_written_back(name, config, settings, tmp_path):
    theirs = theirs_of(name, config, settings)
    expected = outputs_of(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    check(ours, expected, IMAGES)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
    again, report = getattr(transformers, WRITTEN_AS.get(name, name)).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values())
    np.testing.assert_allclose(outputs_of(again.eval()), expected, rtol=0, atol=TOLERANCE)
    first, second = (stored_arrays(tmp_path / place) for place in ("theirs", "ours"))
    assert first.keys() == second.keys()
    for key, array in first.items():
        torch.testing.assert_close(second[key], array, rtol=0, atol=0)


# They compute a square grid from one number.
SQUARE = ("Dinov2", "CLIP", "Siglip")


@pytest.mark.parametrize("name", [name for name in CASES if name not in WRITTEN_AS])
def test_images_that_are_not_square(name, tmp_path):
    """transformers gives the same outputs, or the model is refused."""
    theirs_of(name, *CASES[name][0]).save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs", image_size=(16, 24))
    if name.startswith(SQUARE):
        with pytest.raises(ValueError, match=r"files can describe.*image_size=\(16, 24\)"):
            keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
        return
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours").eval()
    images = np.ascontiguousarray(IMAGES[:, :16, :24])
    check(ours, outputs_of(again, images), images)


ASKED = {"interpolate_pos_encoding": True}
# Models, and what lets them interpolate their positions.
RESIZED = {
    **{"Dinov2Model": {}, "Dinov2WithRegistersModel": {}, "DINOv3ViTModel": {}, "DeiTModel": ASKED},
    **{"ViTMAEModel": ASKED, "ViTMSNModel": ASKED},
    **{"CLIPVisionModel": ASKED, "SiglipVisionModel": ASKED, "Siglip2VisionModel": {}},
}


@pytest.mark.parametrize("size", [(48, 40), (24, 24)])
@pytest.mark.parametrize("name", RESIZED)
def test_other_image_sizes(name, size, tmp_path):
    """Positions are interpolated as transformers does it."""
    theirs = theirs_of(name, *CASES[name][0])
    theirs.save_pretrained(tmp_path)
    images = np.random.default_rng(1).normal(size=(2, *size, 3)).astype("float32")
    ours = keras_vit.from_checkpoint(tmp_path, image_size=size)
    check(ours, outputs_of(theirs, images, **RESIZED[name]), images)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rope_theta": 1000.0}, "`rope_theta` .* must be 100.0. Received: rope_theta=1000.0"),
        ({"mlp_bias": False}, "missing: .*up_proj.bias"),
        ({"proj_bias": False}, "missing: .*o_proj.bias"),
        ({"value_bias": False}, "`value_bias` .* must be that of its arrays, True"),
    ],
)
def test_other_functions_are_refused(settings, message, tmp_path):
    theirs_of("DINOv3ViTModel", "DINOv3ViTConfig", {**WIDE, **settings}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        keras_vit.from_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        (
            "ViTMAEForPreTraining",
            "ViTMAEConfig",
            {"decoder_hidden_size": 32, "decoder_intermediate_size": 40},
        ),
        ("ViTForMaskedImageModeling", "ViTConfig", {"encoder_stride": 8}),
    ],
)
def test_the_encoder_of_a_model_with_a_decoder(name, config, settings, tmp_path):
    theirs = theirs_of(name, config, {**WIDE, **settings})
    theirs.save_pretrained(tmp_path)
    check(keras_vit.from_checkpoint(tmp_path), outputs_of(theirs.vit), IMAGES)


def test_old_configurations_of_clip(tmp_path):
    """transformers uses `vision_config_dict` where there is also a `vision_config`."""
    config = {"text_config": TEXT, "vision_config": {**WIDE, "hidden_act": "quick_gelu"}}
    config |= {"vision_config_dict": {**WIDE, "hidden_act": "gelu"}, "projection_dim": 24}
    theirs = theirs_of("CLIPModel", "CLIPConfig", config)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip", **config}))
    check(keras_vit.from_checkpoint(tmp_path), outputs_of(theirs), IMAGES)


@pytest.mark.parametrize(
    ("name", "index", "options"),
    [
        ("Siglip2VisionModel", 0, {"patch_size": (8, 8)}),
        ("DINOv3ViTModel", 1, {"activation": "silu"}),
        ("DINOv3ViTModel", 0, {"activation": "gelu"}),
    ],
)
def test_weights_without_a_configuration(name, index, options, tmp_path):
    theirs = theirs_of(name, *CASES[name][index])
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    ours = keras_vit.from_checkpoint(tmp_path / "model.safetensors", num_heads=4, image_size=32)
    assert {key: getattr(ours.options, key) for key in options} == options
    check(ours, outputs_of(theirs), IMAGES)


def test_heads_without_a_configuration(tmp_path):
    """Those of the published models of this width and kind of MLP: 24 in DINOv2's giant, not 16."""
    config = {**SIZED, "hidden_size": 1536, "num_hidden_layers": 1, "use_swiglu_ffn": True}
    theirs = theirs_of("Dinov2Model", "Dinov2Config", {**config, "num_attention_heads": 24})
    theirs.save_pretrained(tmp_path)
    ours = keras_vit.from_checkpoint(tmp_path / "model.safetensors")
    assert ours.options.num_heads == 24
    (tmp_path / "config.json").unlink()
    assert keras_vit.from_checkpoint(tmp_path / "model.safetensors").options.num_heads == 24


def test_the_normalization_of_clip(tmp_path):
    """Its projection of patches has no bias; the arrays are restored."""
    theirs = theirs_of("CLIPModel", *CASES["CLIPModel"][0])
    theirs.save_pretrained(tmp_path)
    processor = transformers.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    processor.save_pretrained(tmp_path)
    ours = keras_vit.from_checkpoint(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype("uint8")
    inputs = processor(list(pixels), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = theirs.get_image_features(inputs).pooler_output.numpy()
    check(ours, expected, keras_vit.preprocess(pixels))
    keras_vit.save_checkpoint(ours, tmp_path / "ours", "huggingface")
    for key, array in stored_arrays(tmp_path / "ours").items():
        torch.testing.assert_close(array, stored_arrays(tmp_path)[key], rtol=0, atol=1e-6)


def test_a_backbone_without_a_pooler(tmp_path):
    config = transformers.ViTConfig(**WIDE)
    theirs = randomise(transformers.ViTModel(config, add_pooling_layer=False))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    check(ours, outputs_of(theirs), IMAGES)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
    first, second = (stored_arrays(tmp_path / place) for place in ("theirs", "ours"))
    assert first.keys() == second.keys()


def test_shards(tmp_path):
    theirs = theirs_of("ViTForImageClassification", *CASES["ViTForImageClassification"][0])
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        check(keras_vit.from_checkpoint(path), outputs_of(theirs), IMAGES)


def test_names_in_memory_are_read_too(tmp_path):
    theirs = theirs_of("ViTForImageClassification", *CASES["ViTForImageClassification"][0])
    path = tmp_path / "state_dict.safetensors"
    safetensors.torch.save_file(theirs.state_dict(), path)
    check(keras_vit.from_checkpoint(path, num_heads=4), outputs_of(theirs), IMAGES)


@pytest.mark.parametrize("case", ["a_vit_token", "g_vit_token_bf16", "timm_token"])
def test_models_of_other_projects(case, tmp_path):
    """Google's tanh GELU and timm's epsilon stand in the configuration."""
    keras_vit.save_checkpoint(case_model(case), tmp_path, format="huggingface")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    reference = case_outputs(case)
    logits = outputs_of(theirs, reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TOLERANCE)


def test_names_of_classes_and_the_default_number_of_heads(tmp_path):
    names = [f"class {index}" for index in range(10)]
    keras_vit.save_checkpoint(case_model("hf_classifier"), tmp_path, "huggingface", names)
    config = transformers.ViTConfig.from_pretrained(tmp_path)
    assert [config.id2label[index] for index in range(10)] == names
    assert transformers.ViTConfig().num_attention_heads == VIT.num_heads
