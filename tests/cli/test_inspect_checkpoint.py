"""`keras-vit inspect-checkpoint`."""

import numpy as np
import pytest

import keras_vit
from keras_vit.training.save_callbacks import save_model
from tests.fixtures.checkpoint_files import case_arrays, write
from tests.fixtures.commands import CASE, run
from tests.fixtures.reference import case_model, case_path


@pytest.mark.examples
def test_inspect_resnets(tmp_path, capsys):
    facts = facts_of(run(capsys, "inspect-checkpoint", case_path("k1_bit_resnetv2")))
    assert (facts["format"], facts["builder"]) == ("big_transfer", "resnet")
    assert facts["options"] == "stages=(2, 1, 1, 1), width=32, preactivation=True"
    against = run(capsys, "inspect-checkpoint", case_path(CASE), "--against", "BiT_R50x1")
    assert "family: a Vision Transformer, not a ResNet" in against
    path = tmp_path / "R26.npz"
    keras_vit.save_checkpoint(keras_vit.R26_S32(num_classes=3, image_size=64), path, "google")
    facts = facts_of(run(capsys, "inspect-checkpoint", path))
    assert (facts["builder"], facts["options"]) == ("R26_S32", "none")


def facts_of(printed):
    return dict(line.split(maxsplit=1) for line in printed.splitlines() if len(line.split()) > 1)


def test_inspect(tmp_path, capsys):
    facts = facts_of(run(capsys, "inspect-checkpoint", case_path("g_vit_token_bf16")))
    assert facts["format"] == "google"
    assert facts["parameters"] == "67,594"
    assert facts["stored"] == "as     bfloat16"
    assert facts["head"] == "10 classes"
    assert "num_heads=4" in facts["options"]
    arrays = {**case_arrays(CASE), "head/bias": np.full(10, np.nan, "f4")}
    facts = facts_of(run(capsys, "inspect-checkpoint", write(tmp_path / "nan.npz", arrays)))
    assert facts["head"] == "10 classes, with NaN or infinity"


def test_inspect_a_published_architecture(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=32, activation="gelu")
    keras_vit.save_checkpoint(model, tmp_path, "huggingface")
    printed = run(capsys, "inspect-checkpoint", tmp_path, "--against", "ViT_S16")
    facts = facts_of(printed)
    assert facts["builder"] == "ViT_Ti16"
    assert facts["options"] == "activation='gelu'"
    assert facts["head"] == "3 classes, all zeros"
    assert printed.splitlines()[-5:] == [
        "against ViT_S16: 4 differences",
        "  embedding_dim: 192, not 384",
        "  num_heads: 3, not 6",
        "  mlp_dim: 768, not 1536",
        "  activation: gelu, not gelu_tanh",
    ]


@pytest.mark.slow
def test_inspect_against_another_checkpoint(tmp_path, capsys):
    case_model(CASE).save(tmp_path / "same.keras")
    other = case_model(CASE)
    other.get_layer("block_1").mlp.dense_0.bias.assign_add(np.ones(96))
    other.save(tmp_path / "other.keras")
    command = ["inspect-checkpoint", case_path(CASE), "--against"]
    same = run(capsys, *command, tmp_path / "same.keras").splitlines()
    assert same[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, tmp_path / "other.keras").splitlines()
    assert lines[-1] == "  block_1/mlp/dense_0/bias: values differ by up to 1"
    lines = run(capsys, *command, case_path("i3_bv_map_learn")).splitlines()
    assert lines[-1].endswith("more")
    assert "  class_token/token: only in the first" in lines


@pytest.mark.slow
def test_inspect_names_of_classes(tmp_path, capsys):
    names = [f"class {index}" for index in range(10)]
    model = case_model(CASE)
    paths = [tmp_path / name for name in ("hf", "same.keras", "other.keras")]
    keras_vit.save_checkpoint(model, paths[0], "huggingface", class_names=names)
    save_model(model, paths[1], names)
    save_model(model, paths[2], [*names[:8], "class 9", "class 8"])
    command = ["inspect-checkpoint", paths[0], "--against"]
    lines = run(capsys, *command, paths[1]).splitlines()
    assert "class names   class 0, class 1, class 2, class 3, class 4, ..." in lines
    assert lines[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, paths[2]).splitlines()
    assert lines[-3].endswith("other.keras: 2 differences")
    assert lines[-1] == "  class 9: 'class 9' and 'class 8'"
    # Files that record none are not compared with others.
    lines = run(capsys, *command, case_path(CASE)).splitlines()
    assert lines[-1].endswith(": no differences")


@pytest.mark.slow
def test_all_options_are_compared(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(10, 32, pooling="map", num_registers=4, qk_norm=True)
    model.save(tmp_path / "q.keras")
    out = run(capsys, "inspect-checkpoint", tmp_path / "q.keras", "--against", "ViT_Ti16")
    assert out.splitlines()[-4:] == [
        "against ViT_Ti16: 3 differences",
        "  num_registers: 4, not 0",
        "  pooling: map, not token",
        "  qk_norm: True, not False",
    ]
