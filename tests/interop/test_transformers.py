"""Files of and for the real Hugging Face transformers."""

import numpy as np
import pytest
import torch
import transformers

import keras_vit
from keras_vit.checkpoints.formats.transformers.vit import VIT
from tests.fixtures.peers.torch_models import IMAGES, TOLERANCE, check, randomise, torch_images
from tests.fixtures.reference import case_model, case_outputs

SMALL = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "image_size": [32, 48],
    "patch_size": 8,
    "num_labels": 10,
}
CONFIGURATIONS = {
    "default": {},
    "tanh_gelu": {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
    "quick_gelu": {"hidden_act": "quick_gelu"},
    "large_epsilon": {"layer_norm_eps": 1e-2},
    "no_qkv_bias": {"qkv_bias": False},
    "other_sizes": {"num_attention_heads": 2, "patch_size": [8, 16], "num_hidden_layers": 2},
}


def theirs_of(**changes):
    config = transformers.ViTConfig(**{**SMALL, **changes})
    return randomise(transformers.ViTForImageClassification(config))


def logits_of(model, images=IMAGES):
    with torch.no_grad():
        return model(torch_images(images)).logits.numpy()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_read_and_written_back(name, tmp_path):
    theirs = theirs_of(**CONFIGURATIONS[name])
    expected = logits_of(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    check(ours, expected)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path / "ours")
    np.testing.assert_array_equal(logits_of(again.eval()), expected)


def test_shards(tmp_path):
    theirs = theirs_of()
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    check(keras_vit.from_checkpoint(tmp_path), logits_of(theirs))
    check(keras_vit.from_checkpoint(tmp_path / "model.safetensors.index.json"), logits_of(theirs))


@pytest.mark.parametrize("has_pooler", [True, False])
def test_backbone(has_pooler, tmp_path):
    config = transformers.ViTConfig(**SMALL, pooler_output_size=20)
    theirs = randomise(transformers.ViTModel(config, add_pooling_layer=has_pooler))
    with torch.no_grad():
        outputs = theirs(torch_images())
    theirs.save_pretrained(tmp_path / "theirs")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs")
    pooled = outputs.pooler_output if has_pooler else outputs.last_hidden_state[:, 0]
    check(ours, pooled.numpy())
    keras_vit.save_checkpoint(ours, tmp_path / "ours", format="huggingface")
    again = transformers.ViTModel.from_pretrained(
        tmp_path / "ours", add_pooling_layer=has_pooler
    ).eval()
    with torch.no_grad():
        tokens = again(torch_images()).last_hidden_state.numpy()
    np.testing.assert_array_equal(tokens, outputs.last_hidden_state.numpy())


def test_names_in_memory_are_read_too(tmp_path):
    import safetensors.torch

    theirs = theirs_of()
    path = tmp_path / "state_dict.safetensors"
    safetensors.torch.save_file(theirs.state_dict(), path)
    check(keras_vit.from_checkpoint(path, num_heads=4, image_size=(32, 48)), logits_of(theirs))


@pytest.mark.parametrize("case", ["a_vit_token", "g_vit_token_bf16", "timm_token"])
def test_models_of_other_projects(case, tmp_path):
    """Google's tanh GELU and timm's epsilon stand in the configuration."""
    keras_vit.save_checkpoint(case_model(case), tmp_path, format="huggingface")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    reference = case_outputs(case)
    logits = logits_of(theirs, reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TOLERANCE)


def test_preprocessing(tmp_path):
    keras_vit.save_checkpoint(case_model("a_vit_token"), tmp_path, format="huggingface")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), "uint8")
    pixels = processor(image, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    np.testing.assert_allclose(pixels, keras_vit.preprocess(image), atol=1e-6)


def test_other_models_are_refused(tmp_path):
    small = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32}
    config = transformers.BeitConfig(**small, patch_size=8)
    transformers.BeitForImageClassification(config).save_pretrained(tmp_path / "beit")
    with pytest.raises(ValueError, match="of a known layout. Received: .*beit.embeddings"):
        keras_vit.from_checkpoint(tmp_path / "beit")


def test_names_of_classes_and_the_default_number_of_heads(tmp_path):
    names = [f"class {index}" for index in range(10)]
    keras_vit.save_checkpoint(case_model("hf_classifier"), tmp_path, "huggingface", names)
    config = transformers.ViTConfig.from_pretrained(tmp_path)
    assert [config.id2label[index] for index in range(10)] == names
    assert transformers.ViTConfig().num_attention_heads == VIT.num_heads
