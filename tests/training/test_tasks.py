"""What `fit` refuses of datasets, before it trains."""

import dataclasses

import pytest

from keras_vit.data.pipeline import load
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe


@pytest.mark.slow
@pytest.mark.parametrize("form", ["batches", "dataset"])
def test_given_datasets_get_the_batches_of_the_recipe(form, tmp_path):
    recipe = small_recipe(batch_size=20, label_smoothing=0.1)
    options = {"image_size": 8, "batch_size": 5, "classes": CLASSES}
    pair = [load("digits", split, **options) for split in ("train", "validation")]
    pair = tuple(each if form == "batches" else each.info.dataset for each in pair)
    named = load_training_data(dataclasses.replace(recipe, min_crop_area=None), "digits", CLASSES)
    model = small_model(recipe)
    history = train(recipe, model, pair, tmp_path / "given").history
    again = train(recipe, small_model(recipe), named, tmp_path / "named").history
    assert len(history) == len(again) and "val_accuracy" in history[-1]
    alone = train(recipe, small_model(recipe), pair[0], tmp_path / "alone").history
    assert "val_accuracy" not in alone[-1]
