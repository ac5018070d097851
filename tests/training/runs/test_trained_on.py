"""The images of a run: recorded by their digest, and the same when it is resumed."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.data import find_source
from keras_vit.data.sources.folder import RECORD
from keras_vit.training.trainer import train
from tests.fixtures.commands import error_of, train_arguments
from tests.fixtures.images import encode, random_image
from tests.fixtures.small_runs import small_data, small_model, small_recipe

pytestmark = pytest.mark.slow


def source_of(root, split):
    return find_source(f"folder:{root / 'photos'}", split)


def first_cat(root):
    source = source_of(root, "train")
    return min(id for id in map(source.find_id, source.numbers.tolist()) if id.startswith("cat"))


def test_a_run_records_the_digests_of_its_images(finished):
    images = json.loads((finished / "run" / "run.json").read_text())["images"]
    assert images == {
        "training": source_of(finished, "train").digest(),
        "validation": source_of(finished, "validation").digest(),
    }


def other_bytes(root):
    (root / "photos" / first_cat(root)).write_bytes(encode(random_image(seed=9)))


def other_validation_image(root):
    path = root / "photos" / source_of(root, "validation").find_id(0)
    path.write_bytes(encode(random_image(seed=9)))


def removed(root):
    (root / "photos" / first_cat(root)).unlink()


def added(root):
    """A copy of the image, under a name that is trained on."""
    record = root / "photos" / RECORD
    division = json.loads(record.read_text())
    division["divisions"]["train 70%, validation 10%, test 20%"]["train"].append("cat/new.jpg")
    record.write_text(json.dumps(division))
    shutil.copy(root / "photos" / first_cat(root), root / "photos" / "cat" / "new.jpg")


@pytest.mark.parametrize(
    "change",
    [
        other_validation_image,
        pytest.param(other_bytes, marks=pytest.mark.large),
        pytest.param(removed, marks=pytest.mark.large),
        added,
    ],
)
def test_a_resumed_run_has_the_images_it_was_begun_with(root, capsys, change):
    change(root)
    begun = json.loads((root / "run" / "run.json").read_text())
    model, workdir = begun["model"], root / "run"
    kept = {path: path.read_bytes() for path in workdir.iterdir() if path.is_file()}
    error = error_of(capsys, *train_arguments(model, root / "photos", workdir, "--resume"))
    assert "A resumed job must have the settings it was begun with" in error
    assert "images." in error
    assert {path: path.read_bytes() for path in kept} == kept


def test_validation_images_that_are_trained_on_are_named(tmp_path, caplog):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = small_data(recipe, split="train+validation")
    train(recipe, small_model(recipe), data, tmp_path / "run")
    count = data[1].num_examples
    assert f"{count} of the {count} validation images, which choose the best model" in caplog.text


def test_another_run_is_refused(root, capsys):
    begun = json.loads((root / "run" / "run.json").read_text())
    (root / "run" / "run.json").write_text(json.dumps({**begun, "id": "another"}))
    arguments = train_arguments(begun["model"], root / "photos", root / "run", "--resume")
    assert "settings it was begun with. Received: id=" in error_of(capsys, *arguments)


@pytest.mark.parametrize("record", ["kept", "lost"])
def test_a_cache_is_of_the_same_images(root, tmp_path, record):
    cache = tmp_path / "photos.cache"

    def load_cached():
        return keras_vit.data.load(f"folder:{root / 'photos'}", "train", 8, 4, cache=cache)

    before = [images for images, _ in load_cached().as_numpy_iterator()]
    again = [images for images, _ in load_cached().as_numpy_iterator()]
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(before))
    if record == "lost":
        (tmp_path / "photos.cache.keras_vit.json").unlink()
        with pytest.raises(ValueError, match="made of images that are not recorded"):
            load_cached()
    else:
        other_bytes(root)
        with pytest.raises(ValueError, match="made of others; delete photos.cache"):
            load_cached()
