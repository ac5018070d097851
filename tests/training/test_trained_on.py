"""What a run was trained on: recorded, told by `evaluate`, and the same when a run is resumed."""

import json
import logging
import shutil

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit.cli import main
from keras_vit.data import find_source
from keras_vit.data.fingerprints import fingerprints
from keras_vit.data.sources.division import RECORD
from keras_vit.models import vision_transformer
from keras_vit.training.fit import fit
from keras_vit.training.runs.saved_models import data_of, images_trained_before, load_trained
from keras_vit.training.runs.trained_on import (
    TRAINED_BEFORE,
    TRAINED_ON,
    check_same_images,
    images_trained_on,
    warn_of_trained_images,
)
from keras_vit.training.starting_model import make_model
from keras_vit.training.training_data import load_training_data
from tests.cli.test_cli import error_of, run, train_arguments
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe
from tests.fixtures.tiny import TINY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder of photos, and a run that was trained on it."""
    root = tmp_path_factory.mktemp("finished")
    keras.utils.set_random_seed(0)
    vision_transformer(**TINY).save(root / "start.keras")
    write_folder(root / "photos", count=10)
    main(train_arguments(root / "start.keras", root / "photos", root / "run"))
    return root


@pytest.fixture
def root(finished, tmp_path):
    """A copy of them, at another place."""
    copy = shutil.copytree(finished, tmp_path / "copy")
    run_file = copy / "run" / "run.json"
    run_file.write_text(run_file.read_text().replace(str(finished), str(copy)))
    return copy


def trained_ids(root):
    return set(images_trained_on(root / "run").ids)


def test_a_run_records_the_images_of_its_training_split(finished):
    source = find_source(f"folder:{finished / 'photos'}", "train")
    assert images_trained_on(finished / "run") == fingerprints(source)
    assert len(trained_ids(finished)) == 14
    lines = (finished / "run" / TRAINED_ON).read_text().splitlines()
    assert json.loads(lines[0])["images"] == 14
    assert json.loads(lines[1])[1:] == ["0", source.find_id(0)]


def test_evaluate_names_renamed_and_copied_training_images(root, capsys, caplog):
    trained = sorted(trained_ids(root))
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "trained on" not in caplog.text
    test = find_source(f"folder:{root / 'photos'}", "test")
    victim = root / "photos" / test.find_id(0)
    shutil.copy(root / "photos" / trained[0], victim)
    out = run(capsys, "evaluate", root / "run")
    assert "images: 4" in out
    assert "1 of the 4 images were trained on" in caplog.text
    assert test.find_id(0) in caplog.text
    caplog.clear()
    run(capsys, "evaluate", root / "run", "--split", "train")
    assert "trained on" not in caplog.text


@settings(
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    deleted=st.sets(st.integers(0, 9)),
    added=st.integers(0, 6),
    renamed=st.sets(st.integers(0, 9)),
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
    held_out = find_source(f"folder:{photos}", "validation+test")
    images = fingerprints(held_out)
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
        (other_bytes, "1 image with other bytes (cat/"),
        (removed, "1 image removed (cat/"),
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


def test_a_state_without_a_digest_is_gone_on_with_and_told(finished, caplog):
    images = {"training": images_trained_on(finished / "run")}
    digests = {"training": images["training"].digest()}
    check_same_images(finished / "run", images, ([], {"images": digests}))
    assert not caplog.text
    check_same_images(finished / "run", images, ([], {}))
    assert "did not record its images" in caplog.text


def test_a_run_knows_what_its_model_was_trained_on_before(root, tmp_path, capsys, caplog):
    flowers = write_folder(tmp_path / "flowers", ("rose", "tulip"), count=10, suffix=".png")
    main(train_arguments(root / "run", flowers, tmp_path / "second"))
    assert trained_ids(root) < set(images_trained_on(tmp_path / "second").ids)
    main(train_arguments(tmp_path / "second", flowers, tmp_path / "third"))
    assert trained_ids(root) < set(images_trained_on(tmp_path / "third").ids)
    assert (tmp_path / "third" / TRAINED_BEFORE).exists()
    capsys.readouterr()
    photo = root / "photos" / min(trained_ids(root))
    for id in images_of(flowers, "test").ids:
        shutil.copy(photo, flowers / id)
    run(capsys, "evaluate", tmp_path / "third")
    assert "4 of the 4 images were trained on" in caplog.text


WAYS = {
    "make_model": lambda run: make_model(small_recipe(), run, num_classes=3),
    "load_trained": load_trained,
    "resize": lambda run: keras_vit.resize(load_trained(run), 24),
    "replace_head": lambda run: keras_vit.replace_head(load_trained(run), 5),
    "from_checkpoint": lambda run: keras_vit.from_checkpoint(run / "best.keras", num_classes=4),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_a_run_leads_to_its_images(finished, way):
    assert images_trained_before(WAYS[way](finished / "run")) == images_trained_on(finished / "run")


def test_weights_of_another_file_are_of_that_file(finished):
    model = keras_vit.replace_head(load_trained(finished / "run"), TINY["num_classes"])
    keras_vit.load_checkpoint(model, finished / "start.keras")
    assert images_trained_before(model) is None


@pytest.mark.parametrize("failed", [False, True], ids=["first", "after one that failed"])
def test_a_run_from_python_records_what_its_model_was_trained_on_before(
    failed, finished, tmp_path, monkeypatch
):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = load_training_data(recipe, "digits", CLASSES)
    model = make_model(recipe, finished / "run", num_classes=3)
    if failed:
        with monkeypatch.context() as patched, pytest.raises(TypeError):
            patched.setattr("keras_vit.training.fit.ResumableFit.fit", None)
            fit(recipe, model, data, tmp_path / "second")
    fit(recipe, model, data, tmp_path / "second")
    found = images_trained_on(tmp_path / "second")
    assert set(found.ids) == trained_ids(finished) | set(data[0].fingerprints().ids)
    # The model itself was trained further.
    assert images_trained_before(model) == found


def test_runs_of_models_with_other_training_images_have_other_ids(finished, tmp_path):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = load_training_data(recipe, "digits", CLASSES)
    ids = []
    for name, before in (("a", None), ("b", None), ("c", images_trained_on(finished / "run"))):
        model = small_model(recipe, len(CLASSES))
        fit(recipe, model, data, tmp_path / name, trained_before=before)
        ids.append(json.loads((tmp_path / name / "run.json").read_text())["id"])
    assert ids[0] == ids[1] != ids[2]


def test_validation_images_that_are_trained_on_are_named(tmp_path, caplog):
    recipe = small_recipe(steps=2, warmup_steps=1)
    data = load_training_data(
        recipe, "digits", CLASSES, split="train+validation", validation="validation"
    )
    fit(recipe, small_model(recipe, len(CLASSES)), data, tmp_path / "run")
    count = data[1].num_examples
    assert f"{count} of the {count} validation images, which choose the best model" in caplog.text


@pytest.mark.parametrize(
    ("source", "level", "message"),
    [
        (lambda root: root / "start.keras", "INFO", "does not record the images"),
        (lambda root: case_path("a_vit_token"), "INFO", "does not record the images"),
        (lambda root: root / "alone.keras", "WARNING", "whose record is not next to it"),
        (lambda root: root / "gone.keras", "WARNING", "is not there"),
    ],
)
def test_a_start_without_a_record_is_logged(root, caplog, source, level, message):
    for name in ("alone", "gone"):
        shutil.copy(root / "run" / "best.keras", root / f"{name}.keras")
    model = keras_vit.from_checkpoint(source(root))
    (root / "gone.keras").unlink()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="keras_vit"):
        assert images_trained_before(model) is None
    (record,) = caplog.records
    assert record.levelname == level
    assert message in record.getMessage()


def test_new_and_published_weights_are_not_logged(caplog, monkeypatch):
    loading = "keras_vit.checkpoints.loading"
    monkeypatch.setattr(f"{loading}.published_row", lambda file: "a row of the catalog")
    with caplog.at_level(logging.INFO, logger="keras_vit"):
        assert images_trained_before(vision_transformer(**TINY)) is None
        assert images_trained_before(keras_vit.from_checkpoint(case_path("a_vit_token"))) is None
    assert "does not record" not in caplog.text


def images_of(photos, split):
    return fingerprints(find_source(f"folder:{photos}", split))


# What the test split was in version 0.1, by places in the sorted list.
TEST_IMAGES_OF_VERSION_0_1 = ["cat/1.jpg", "cat/8.jpg", "dog/1.jpg", "dog/8.jpg"]


def test_a_run_of_version_0_1_is_evaluated_on_its_own_division(root, capsys, caplog):
    source = find_source(f"by-position:folder:{root / 'photos'}", "test")
    assert [source.find_id(number) for number in source.numbers] == TEST_IMAGES_OF_VERSION_0_1
    run_file = root / "run" / "run.json"
    facts = json.loads(run_file.read_text())
    del facts["id"]
    run_file.write_text(json.dumps(facts))
    (root / "run" / TRAINED_ON).unlink()
    assert data_of(facts) == f"by-position:folder:{root / 'photos'}"
    assert data_of(facts, f"folder:{root / 'photos'}") == data_of(facts)
    assert data_of(facts, "folder:elsewhere") == "folder:elsewhere"
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "a version that did not record its training images" in caplog.text


def test_a_run_is_evaluated_without_what_it_left_out(root, tmp_path, capsys, caplog):
    left_out = images_of(root / "photos", "test").ids[:2]
    exclude = tmp_path / "exclude.txt"
    exclude.write_text("".join(f"{id}\n" for id in left_out))
    run_file = root / "run" / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "exclude": str(exclude)}))
    assert "images: 2" in run(capsys, "evaluate", root / "run")
    exclude.unlink()
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "which is not there: none are left out" in caplog.text


def test_a_run_keeps_the_list_of_what_it_left_out(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exclude = tmp_path / "exclude.txt"
    exclude.write_text(images_of(root / "photos", "test").ids[0])
    arguments = train_arguments(root / "start.keras", root / "photos", tmp_path / "run")
    main([*arguments, "--exclude", "exclude.txt"])
    exclude.write_text("\n".join(images_of(root / "photos", "test").ids[:3]))
    assert "images: 3" in run(capsys, "evaluate", tmp_path / "run")


def test_a_file_that_left_its_run_says_so(root, tmp_path, capsys, caplog):
    shutil.copy(root / "run" / "best.keras", tmp_path / "alone.keras")
    run(capsys, "evaluate", tmp_path / "alone.keras", "--data", f"folder:{root / 'photos'}")
    assert "whose record is not next to it" in caplog.text


def test_other_data_are_checked_under_the_name_of_the_training_split(root, capsys, caplog):
    other = shutil.copytree(root / "photos", root / "other photos")
    run(capsys, "evaluate", root / "run", "--data", f"folder:{other}", "--split", "train")
    assert "14 of the 14 images were trained on" in caplog.text


def test_few_shots_of_training_images_are_told(root, capsys, caplog):
    data = ["--data", f"folder:{root / 'photos'}", "--shots", "1"]
    run(capsys, "fewshot", root / "run", *data)
    assert "trained on" not in caplog.text
    run(capsys, "fewshot", root / "run", *data, "--train-split", "test", "--test-split", "train")
    assert "14 of the 14 images were trained on" in caplog.text


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
