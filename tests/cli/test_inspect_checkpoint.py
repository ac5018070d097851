"""`keras-vit inspect-checkpoint`."""

import numpy as np
import pytest

import keras_vit
from keras_vit.training.save_callbacks import save_model
from tests.fixtures.checkpoint_files import case_arrays, write
from tests.fixtures.commands import CASE, run
from tests.fixtures.reference import case_model, case_path


def facts_of(printed):
    return dict(line.split(maxsplit=1) for line in printed.splitlines() if len(line.split()) > 1)


def test_facts_of_a_file(tmp_path, capsys):
    facts = facts_of(run(capsys, "inspect-checkpoint", case_path("g_vit_token_bf16")))
    assert facts["format"] == "google"
    assert facts["parameters"] == "67,594"
    assert "num_heads=4" in facts["options"]
    arrays = {**case_arrays(CASE), "head/bias": np.full(10, np.nan, "f4")}
    facts = facts_of(run(capsys, "inspect-checkpoint", write(tmp_path / "nan.npz", arrays)))
    assert facts["head"] == "10 classes, with NaN or infinity"


def test_differences_to_a_variant(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=32, activation="gelu")
    keras_vit.save_checkpoint(model, tmp_path, "huggingface")
    printed = run(capsys, "inspect-checkpoint", tmp_path, "--against", "ViT_S16")
    facts = facts_of(printed)
    assert (facts["builder"], facts["options"]) == ("ViT_Ti16", "activation='gelu'")
    assert printed.splitlines()[-5:] == [
        "against ViT_S16: 4 differences",
        "  embedding_dim: 192, not 384",
        "  num_heads: 3, not 6",
        "  mlp_dim: 768, not 1536",
        "  activation: gelu, not gelu_tanh",
    ]


@pytest.mark.slow
def test_differences_to_another_checkpoint(tmp_path, capsys):
    case_model(CASE).save(tmp_path / "same.keras")
    other = case_model(CASE)
    other.get_layer("block_1").mlp.dense_0.bias.assign_add(np.ones(96))
    other.save(tmp_path / "other.keras")
    command = ["inspect-checkpoint", case_path(CASE), "--against"]
    same = run(capsys, *command, tmp_path / "same.keras").splitlines()
    assert same[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, tmp_path / "other.keras").splitlines()
    assert lines[-1] == "  block_1/mlp/dense_0/bias: values differ by up to 1"
    other = run(capsys, *command, case_path("i3_bv_map_learn")).splitlines()
    assert "  class_token/token: only in the first" in other


@pytest.mark.slow
def test_differences_of_names_of_classes(tmp_path, capsys):
    names = [f"class {index}" for index in range(10)]
    model = case_model(CASE)
    paths = [tmp_path / name for name in ("hf", "same.keras", "other.keras")]
    keras_vit.save_checkpoint(model, paths[0], "huggingface", class_names=names)
    save_model(model, paths[1], names)
    save_model(model, paths[2], [*names[:8], "class 9", "class 8"])
    command = ["inspect-checkpoint", paths[0], "--against"]
    lines = run(capsys, *command, paths[1]).splitlines()
    assert lines[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, paths[2]).splitlines()
    assert lines[-1] == "  class 9: 'class 9' and 'class 8'"
