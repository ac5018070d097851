"""The images of a run: recorded, and the same when it is resumed."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit.cli import main
from keras_vit.data.sources.division import RECORD
from keras_vit.training.fit import fit
from keras_vit.training.runs.trained_on import (
    TRAINED_ON,
    images_trained_on,
    warn_of_trained_images,
)
from tests.fixtures.commands import error_of, train_arguments
from tests.fixtures.images import encode, random_image
from tests.fixtures.small_runs import small_data, small_model, small_recipe
from tests.training.runs.recorded import images_of, trained_ids

pytestmark = pytest.mark.slow


def test_a_run_records_the_images_of_its_training_split(finished):
    images = images_of(finished / "photos", "train")
    assert images_trained_on(finished / "run") == images
    assert len(images.ids) == 14
    lines = (finished / "run" / TRAINED_ON).read_text().splitlines()
    assert json.loads(lines[0])["images"] == 14
    assert json.loads(lines[1])[1:] == ["0", images.ids[0]]


@settings(deadline=None, derandomize=True, max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    deleted=st.sets(st.integers(0, 9)), added=st.integers(0, 6), renamed=st.sets(st.integers(0, 9))
)
def test_every_test_image_is_new_or_named(finished, tmp_path_factory, deleted, added, renamed):
    photos = shutil.copytree(finished / "photos", tmp_path_factory.mktemp("changed") / "photos")
    # One that stays.
    for name in deleted - {0}:
        (photos / "cat" / f"{name}.jpg").unlink()
    for number in range(added):
        (photos / "cat" / f"new{number}.jpg").write_bytes(encode(random_image(seed=99 + number)))
    for name in renamed:
        (photos / "dog" / f"{name}.jpg").replace(photos / "dog" / f"a{name}.jpg")
    trained = images_trained_on(finished / "run")
    images = images_of(photos, "validation+test")
    truly = {i for i, d in zip(images.ids, images.digests, strict=True) if d in trained.digests}
    assert set(warn_of_trained_images(finished / "run", images)) == truly
    # Those that kept their names kept their split.
    assert truly <= {f"dog/a{name}.jpg" for name in renamed}


def other_bytes(photos, id):
    (photos / id).write_bytes(encode(random_image(seed=9)))


def other_validation_image(photos, id):
    other_bytes(photos, images_of(photos, "validation").ids[0])


def removed(photos, id):
    (photos / id).unlink()


def added(photos, id):
    """A copy of the image, under a name that is trained on."""
    record = photos / RECORD
    division = json.loads(record.read_text())
    division["divisions"]["train 70%, validation 10%, test 20%"]["train"].append("cat/new.jpg")
    record.write_text(json.dumps(division))
    shutil.copy(photos / id, photos / "cat" / "new.jpg")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_validation_image, "1 image with other bytes ("),
        pytest.param(other_bytes, "1 image with other bytes (cat/", marks=pytest.mark.large),
        pytest.param(removed, "1 image removed (cat/", marks=pytest.mark.large),
        (added, "1 image added (cat/new.jpg)"),
    ],
)
def test_a_resumed_run_has_the_images_it_was_begun_with(root, capsys, change, message):
    id = next(id for id in sorted(trained_ids(root)) if id.startswith("cat"))
    change(root / "photos", id)
    begun = json.loads((root / "run" / "run.json").read_text())
    model, workdir = begun["model"], root / "run"
    kept = {path: path.read_bytes() for path in workdir.iterdir() if path.is_file()}
    error = error_of(capsys, *train_arguments(model, root / "photos", workdir, "--resume"))
    kind = "validation" if change is other_validation_image else "training"
    assert f"must have the {kind} images that it was begun with" in error
    assert message in error
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained_on.jsonl", "validated_on.jsonl"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_record_is_written_again(kind, is_missing, root, caplog):
    path = root / "run" / kind
    before = path.read_text()
    path.write_text(before[:50])
    if is_missing:
        path.unlink()
    main(train_arguments(root / "start.keras", root / "photos", root / "run", "--resume"))
    assert path.read_text() == before
    assert f"{path} was damaged or missing: written again" in caplog.text


def test_validation_images_that_are_trained_on_are_named(tmp_path, caplog):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = small_data(recipe, split="train+validation")
    fit(recipe, small_model(recipe), data, tmp_path / "run")
    count = data[1].num_examples
    assert f"{count} of the {count} validation images, which choose the best model" in caplog.text


def test_states_of_another_run_are_refused(root, capsys):
    begun = json.loads((root / "run" / "run.json").read_text())
    (root / "run" / "run.json").write_text(json.dumps({**begun, "id": "another"}))
    arguments = train_arguments(begun["model"], root / "photos", root / "run", "--resume")
    assert "must have the states of its own run" in error_of(capsys, *arguments)


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
        other_bytes(root / "photos", min(trained_ids(root)))
        with pytest.raises(ValueError, match="made of others; delete photos.cache"):
            load_cached()
