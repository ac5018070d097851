"""`keras-vit quickstart`."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import keras
import pytest

from tests.fixtures.commands import run
from tests.fixtures.small_runs import smoke


@pytest.mark.large
def test_quickstart(tmp_path, capsys, monkeypatch):
    """The whole job, its training shortened; `make demo` runs it in full."""
    from keras_vit.cli import quickstart
    from keras_vit.training.recipe import RECIPES

    monkeypatch.setattr(quickstart, "MODEL", quickstart.MODEL.replace("depth=3", "depth=1"))
    monkeypatch.setattr(quickstart, "FINETUNING_STEPS", 4)
    monkeypatch.setattr(quickstart, "PRETRAINING_PASSES", 1)
    pretrain, finetune = (smoke(RECIPES[f"digits_{task}"]) for task in ("pretrain", "finetune"))
    shortened = dataclasses.replace(pretrain, steps=None, epochs=1)
    monkeypatch.setitem(RECIPES, "digits_pretrain", shortened)
    monkeypatch.setitem(RECIPES, "digits_finetune", finetune)
    out = run(capsys, "quickstart", "--workdir", tmp_path / "quickstart")
    assert "test accuracy fine-tuned:" in out
    picture = tmp_path / "quickstart" / "predictions.png"
    accuracies = json.loads((tmp_path / "quickstart" / "accuracies.json").read_text())
    assert set(accuracies) == {"fine-tuned", "from scratch"}
    assert keras.utils.img_to_array(keras.utils.load_img(picture)).std() > 10
    assert (tmp_path / "quickstart" / "serving" / "1" / "saved_model.pb").is_file()
    assert len(list((tmp_path / "quickstart").glob("*_is_a_*.png"))) == 4


@pytest.mark.demo
def test_demo(tmp_path):
    """At least 95 %, and better than from scratch, within six minutes."""
    workdir = tmp_path / "quickstart"
    command = pathlib.Path(sys.executable).with_name("keras-vit")
    subprocess.run([command, "quickstart", "--workdir", workdir], check=True, timeout=360)
    accuracies = json.loads((workdir / "accuracies.json").read_text())
    assert accuracies["fine-tuned"] >= 0.95
    assert accuracies["fine-tuned"] > accuracies["from scratch"]
