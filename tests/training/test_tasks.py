"""What `fit` refuses of datasets, before it trains."""

import dataclasses

import pytest

from keras_vit.data.loading import find_source, load
from keras_vit.training.job import load_training_data, train
from keras_vit.training.tasks import make_task
from tests.fixtures.images import write_folder
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


def without_classes(tmp_path, *empty):
    """Training data of a folder with images of three classes, all of some left out."""
    photos = write_folder(tmp_path / "photos", classes=("ant", "bee", "cat"), count=12)
    source = find_source(f"folder:{photos}", "train")
    ids = map(source.find_id, source.numbers.tolist())
    exclude = [id for id in ids if id.split("/")[0] in empty]
    return load_training_data(small_recipe(batch_size=4), f"folder:{photos}", exclude=exclude)


def test_classes_without_training_images(tmp_path, caplog):
    recipe = small_recipe(batch_size=4)
    make_task(recipe, small_model(recipe), *without_classes(tmp_path, "bee"))
    assert "1 of the 3 classes have no training image: bee" in caplog.text
