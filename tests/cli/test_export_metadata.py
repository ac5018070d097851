"""What an export records about the run of its model."""

import dataclasses
import json

import pytest

from keras_vit.cli.export import export_metadata
from keras_vit.models import vision_transformer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.save_callbacks import save_model
from tests.fixtures.features import digits_classifier
from tests.fixtures.tiny import TINY

LINES = [
    {"epoch": 0, "val_loss": 0.5, "val_accuracy": 0.75},
    {"step": 7, "fewshot_5shot": 0.95},
    {"epoch": 1, "val_loss": 0.6, "val_accuracy": 0.5},
    {"epoch": 2, "val_loss": float("nan"), "val_accuracy": 1.0},
    {"epoch": 3, "val_loss": None, "val_accuracy": 0.9},
    {"step": 16, "fewshot_5shot": None},
]


def write_run(tmp_path, lines=LINES, **changes):
    """Write what a run at 8 pixels leaves, and models."""
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], image_size=8, **changes)
    run = {"id": "0f", "recipe": dataclasses.asdict(recipe), "class_names": list("ab")}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = digits_classifier(2)
    for name in ("best", "last", "averaged"):
        save_model(model, tmp_path / f"{name}.keras", list("ab"))
    return tmp_path, model


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"best": 0.75, "last": 0.5, "averaged": None}),
        # The run evaluates the averages.
        ({"ema_momentum": 0.9}, {"best": 0.75, "last": None, "averaged": 0.5}),
    ],
)
def test_validation_accuracy_of_an_export(changes, expected, tmp_path):
    workdir, model = write_run(tmp_path, **changes)
    for name, accuracy in expected.items():
        assert (
            export_metadata(model, workdir / f"{name}.keras").get("validation_accuracy") == accuracy
        )
        facts = export_metadata(model, workdir / f"{name}.keras", quantize="int8")
        assert facts.get("validation_accuracy_before_quantization") == accuracy
        assert "validation_accuracy" not in facts
    resized = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 2})
    assert "validation_accuracy" not in export_metadata(resized, workdir)
