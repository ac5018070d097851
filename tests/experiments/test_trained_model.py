"""The reported accuracy that a trained model is compared with."""

import dataclasses
import json
import pathlib
import types

from keras_vit.experiments import comparison
from keras_vit.experiments.trained_model import TrainedModel
from keras_vit.training.recipes import RECIPES


def test_comparison_that_model_and_dataset_tell(monkeypatch):
    monkeypatch.setattr(comparison, "builder_of", lambda model: "ViT_L16")
    recipe = json.loads(json.dumps(dataclasses.asdict(RECIPES["finetune_cifar"])))
    facts = {"model": "ViT_L16/imagenet21k", "data": "cifar100", "split": "train"}
    model = types.SimpleNamespace(input_shape=(None, 384, 384, 3))

    def row(name, data=None, split="test", **options):
        path = pathlib.Path("runs/cifar") / name
        trained = TrainedModel(str(path), path, {**facts, "recipe": recipe}, model)
        return trained.find_reported(data, split, 100, **options)

    assert row("best.keras").name == row("last.keras", data="cifar100").name
    assert row("best.keras").name == "ViT_L16/imagenet21k/cifar100"
    assert row("other.keras") is None
    for options in ({"split": "validation"}, {"data": "cifar10"}, {"central_crop_from": 448}):
        assert row("best.keras", **options) is None
