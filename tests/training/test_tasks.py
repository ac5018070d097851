"""What `fit` refuses of datasets, before it trains."""

import pytest

from keras_vit.data.loading import find_source, load
from keras_vit.training.fit import fit
from keras_vit.training.tasks import make_task
from keras_vit.training.training_data import load_training_data
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"batch_size": 5, "repeat": True}, "batches of 5"),
        ({"batch_size": 20}, "a dataset that is not repeated"),
    ],
)
def test_data_of_another_recipe(options, received, tmp_path):
    recipe = small_recipe(batch_size=20)
    train = load("digits", "train", image_size=8, classes=CLASSES, **options)
    message = f"`data` must be repeated .* the recipe's batches of 20 images.*Received: {received}"
    for target in ("softmax", "mean_colour"):
        wanted = small_recipe(batch_size=20, loss=target)
        with pytest.raises(ValueError, match=message):
            fit(wanted, small_model(recipe), (train, None), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def without_classes(tmp_path, *empty):
    """Training data of a folder with images of three classes, all of some left out."""
    photos = write_folder(tmp_path / "photos", classes=("ant", "bee", "cat"), count=12)
    source = find_source(f"folder:{photos}", "train")
    ids = map(source.find_id, source.numbers.tolist())
    exclude = [id for id in ids if id.split("/")[0] in empty]
    return load_training_data(small_recipe(batch_size=4), f"folder:{photos}", exclude=exclude)


def test_classes_without_training_images(tmp_path, caplog):
    recipe = small_recipe(batch_size=4)
    make_task(recipe, small_model(recipe), without_classes(tmp_path, "bee"))
    assert "1 of the 3 classes have no training image: bee" in caplog.text


@pytest.mark.slow
def test_training_images_of_one_class(tmp_path):
    recipe = small_recipe(batch_size=4)
    with pytest.raises(ValueError, match="at least two classes. Received: images of 1 of the 3"):
        make_task(recipe, small_model(recipe), without_classes(tmp_path, "ant", "bee"))
