"""The images of a run: the same when it is resumed, and not those that it is evaluated on."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.cli import main
from keras_vit.data import find_source
from keras_vit.data.sources.folder import RECORD
from keras_vit.training.trainer import train
from tests.fixtures.commands import error_of, run, train_arguments
from tests.fixtures.images import encode, random_image
from tests.fixtures.small_runs import small_data, small_model, small_recipe

pytestmark = pytest.mark.slow


def source_of(root, split):
    return find_source(f"folder:{root / 'photos'}", split)


def ids_of(root, split):
    source = source_of(root, split)
    return [*map(source.find_id, source.numbers.tolist())]


def first_cat(root):
    return min(id for id in ids_of(root, "train") if id.startswith("cat"))


def other_bytes(root):
    (root / "photos" / first_cat(root)).write_bytes(encode(random_image(seed=9)))


def other_validation_image(root):
    path = root / "photos" / source_of(root, "validation").find_id(0)
    path.write_bytes(encode(random_image(seed=9)))


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
        added,
    ],
)
def test_a_resumed_run_has_the_images_it_was_begun_with(root, capsys, change):
    change(root)
    workdir = root / "run"
    kept = {path: path.read_bytes() for path in workdir.iterdir() if path.is_file()}
    arguments = train_arguments(root / "start.keras", root / "photos", workdir, "--resume")
    assert "images." in error_of(capsys, *arguments)
    assert {path: path.read_bytes() for path in kept} == kept


def test_validation_images_that_are_trained_on_are_named(tmp_path, caplog):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = small_data(recipe, split="train+validation")
    train(recipe, small_model(recipe), data, tmp_path / "run")
    count = data[1].num_examples
    assert f"{count} of the {count} validation images, by which the best model" in caplog.text


def test_a_cache_is_of_the_same_images(root, tmp_path):
    def load_cached():
        cache = tmp_path / "photos.cache"
        return keras_vit.data.load(f"folder:{root / 'photos'}", "train", 8, 4, cache=cache)

    before, again = ([images for images, _ in load_cached().as_numpy_iterator()] for _ in range(2))
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(before))
    other_bytes(root)
    with pytest.raises(ValueError, match="made from other images"):
        load_cached()
    (tmp_path / "photos.cache.keras_vit.json").unlink()
    with pytest.raises(ValueError, match="made from unknown images"):
        load_cached()


def test_an_evaluation_of_the_training_images_is_told(root, capsys, caplog):
    message = "the model was trained on these images"
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert message not in caplog.text
    other = shutil.copytree(root / "photos", root / "other photos")
    for data in ((), ("--data", f"folder:{other}")):
        caplog.clear()
        run(capsys, "evaluate", root / "run", *data, "--split", "train")
        assert message in caplog.text


def test_a_run_keeps_the_list_of_what_it_left_out(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exclude = tmp_path / "exclude.txt"
    exclude.write_text(ids_of(root, "test")[0])
    arguments = train_arguments(root / "start.keras", root / "photos", tmp_path / "run")
    main([*arguments, "--exclude", "exclude.txt"])
    exclude.write_text("\n".join(ids_of(root, "test")[:3]))
    assert "images: 3" in run(capsys, "evaluate", tmp_path / "run")
