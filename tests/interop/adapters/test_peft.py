"""Adapters of and for the real peft, with the ViT of transformers."""

import json

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import keras_vit
from tests.fixtures.peers.torch_models import IMAGES, TOLERANCE, check, randomise, torch_images

# Peft itself uses what transformers deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

CONFIG = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "image_size": [32, 48],
    "patch_size": 8,
    "num_labels": 10,
}
MODULES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "dense_0": "fc1",
    "dense_1": "fc2",
}
OLD_NAMES = {
    "vit.layers.": "vit.encoder.layer.",
    "attention.q_proj": "attention.attention.query",
    "attention.v_proj": "attention.attention.value",
}
RANK = 4


def write_base(path, kind):
    randomise(kind(transformers.ViTConfig(**CONFIG))).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("base"), transformers.ViTForImageClassification)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("backbone"), transformers.ViTModel)


def theirs_of(base, kind=transformers.ViTForImageClassification):
    return kind.from_pretrained(base).eval()


def logits_of(model):
    """Logits, or the pooled output of a model without a classifier."""
    with torch.no_grad():
        outputs = model(torch_images(IMAGES))
    return (outputs.logits if "logits" in outputs else outputs.pooler_output).numpy()


def write(base, path, layers, kind=transformers.ViTForImageClassification, **settings):
    """Write an adapter of peft that is not zero; return the logits."""
    config = peft.LoraConfig(
        r=RANK,
        lora_alpha=8,
        target_modules=[MODULES[layer] for layer in layers],
        **{"modules_to_save": ["classifier"], **settings},
    )
    theirs = peft.get_peft_model(theirs_of(base, kind), config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1)
    theirs.save_pretrained(path)
    return logits_of(theirs)


def ours_of(base, layers, alpha=8):
    model = keras_vit.from_checkpoint(base)
    return keras_vit.enable_lora(model, RANK, alpha, layers)


@pytest.mark.parametrize("layers", [("query", "value"), tuple(MODULES)], ids=["two", "all"])
@pytest.mark.parametrize("use_rslora", [False, True])
def test_read_and_written_back(layers, use_rslora, base, tmp_path):
    expected = write(base, tmp_path / "theirs", layers, use_rslora=use_rslora)
    # Rank-stabilized LoRA divides by the root of the rank.
    ours = ours_of(base, layers, alpha=8 * RANK**0.5 if use_rslora else 8)
    keras_vit.load_adapter(ours, tmp_path / "theirs")
    check(ours, expected)
    check(keras_vit.merge_lora(ours), expected)
    keras_vit.save_adapter(ours, tmp_path / "ours")
    again = peft.PeftModel.from_pretrained(theirs_of(base), tmp_path / "ours").eval()
    np.testing.assert_allclose(logits_of(again), expected, rtol=0, atol=TOLERANCE)


def test_adapters_without_a_head_keep_the_head_of_the_model(base, tmp_path):
    expected = write(base, tmp_path, ("query",), modules_to_save=None)
    ours = ours_of(base, ("query",))
    ours.class_names = names = tuple("abcdefghij")
    keras_vit.load_adapter(ours, tmp_path)
    check(ours, expected)
    assert ours.class_names == names


def test_models_without_a_classifier(backbone, tmp_path):
    kind = transformers.ViTModel
    expected = write(backbone, tmp_path / "theirs", ("query",), kind, modules_to_save=None)
    ours = ours_of(backbone, ("query",))
    keras_vit.load_adapter(ours, tmp_path / "theirs")
    check(ours, expected)
    keras_vit.save_adapter(ours, tmp_path / "ours")
    again = peft.PeftModel.from_pretrained(theirs_of(backbone, kind), tmp_path / "ours").eval()
    np.testing.assert_allclose(logits_of(again), expected, rtol=0, atol=TOLERANCE)


def test_adapter_of_a_classifier_for_its_backbone(base, tmp_path):
    write(base, tmp_path / "theirs", ("query",), modules_to_save=None)
    theirs = peft.PeftModel.from_pretrained(theirs_of(base), tmp_path / "theirs").eval()
    ours = keras_vit.from_checkpoint(base, num_classes=0)
    ours = keras_vit.enable_lora(ours, RANK, 8, ("query",))
    keras_vit.load_adapter(ours, tmp_path / "theirs")
    with torch.no_grad():
        tokens = theirs.base_model.model.vit(torch_images(IMAGES)).last_hidden_state
    check(ours, tokens[:, 0].numpy())


def test_names_of_older_versions(base, tmp_path):
    expected = write(base, tmp_path, ("query", "value"))
    path = tmp_path / "adapter_model.safetensors"
    renamed = {}
    for name, array in load_file(path).items():
        for new, old in OLD_NAMES.items():
            name = name.replace(new, old)
        renamed[name] = array
    save_file(renamed, path)
    ours = ours_of(base, ("query", "value"))
    keras_vit.load_adapter(ours, tmp_path)
    check(ours, expected)


@pytest.mark.parametrize(
    "setting",
    [
        {"use_dora": True},
        {"bias": "lora_only"},
        {"rank_pattern": {"q_proj": 2}},
        {"alpha_pattern": {"q_proj": 2}},
        {"init_lora_weights": "pissa"},
        {"lora_bias": True},
        {"a_setting_of_the_future": 1},
        {"peft_type": "IA3"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_that_are_not_supported(setting, base, tmp_path):
    write(base, tmp_path, ("query",))
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **setting}))
    with pytest.raises(ValueError, match=f"Received: {next(iter(setting))}="):
        keras_vit.load_adapter(ours_of(base, ("query",)), tmp_path)
