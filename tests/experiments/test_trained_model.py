"""A trained model: the accuracy that it is compared with, and how its images are read."""

import json

import pytest

from keras_vit.experiments.model_and_data import open_trained
from tests.fixtures.images import write_folder
from tests.fixtures.models import small_classifier


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
