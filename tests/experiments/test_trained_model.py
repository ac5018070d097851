"""A trained model: the accuracy that it is compared with, and how its images are read."""

import dataclasses
import json
import pathlib
import types

import pytest

from keras_vit.experiments import comparison
from keras_vit.experiments.trained_model import TrainedModel, open_trained
from keras_vit.training.recipes import RECIPES
from tests.fixtures.images import write_folder
from tests.fixtures.models import small_classifier


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


@pytest.mark.slow
def test_images_are_turned_as_the_run_turned_them(tmp_path):
    photos = write_folder(tmp_path / "photos", count=20)
    run, model = tmp_path / "run", small_classifier("token", image_size=(16, 16))
    run.mkdir()
    model.save(run / "best.keras")
    for recipe, given, expected in (
        ({"upright": True}, {}, True),
        ({"upright": True}, {"upright": False}, True),
        ({}, {"upright": True}, True),
        ({}, {}, False),
    ):
        (run / "run.json").write_text(json.dumps({"recipe": recipe}))
        trained = open_trained(run)
        dataset = trained.load(f"folder:{photos}", "test", batch_size=2, classes=None, **given)
        assert dataset.info.dataset.maker.preprocessing.upright is expected


@pytest.mark.parametrize(
    ("record", "is_told"),
    [
        ({"backend": "jax"}, True),
        ({"backend": "jax", "has_ended": True}, False),
    ],
    ids=["stopped", "ended"],
)
def test_the_model_of_a_run_that_has_not_ended_is_told(record, is_told, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    small_classifier("token", image_size=(16, 16)).save(tmp_path / "best.keras")
    (tmp_path / "run.json").write_text(json.dumps({"recipe": {}, **record}))
    open_trained(tmp_path)
    assert ("this run has not ended" in caplog.text) == is_told
