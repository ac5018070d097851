"""What a run was trained on: recorded, told by `evaluate`, and the same when a run is resumed."""

import json
import shutil

import keras
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_vit.cli import main
from keras_vit.data import find_source
from keras_vit.data.division import RECORD
from keras_vit.data.fingerprints import Fingerprints, describe_changes, fingerprints
from keras_vit.models import vision_transformer
from keras_vit.training.saved_models import data_of
from keras_vit.training.trained_on import (
    TRAINED_BEFORE,
    TRAINED_ON,
    check_same_images,
    images_trained_on,
    warn_of_trained_images,
    write_record,
)
from tests.images import encode, random_image, write_folder
from tests.models.test_vit import TINY
from tests.test_cli import error_of, run, train_arguments


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
    first = json.loads((finished / "run" / TRAINED_ON).read_text().splitlines()[0])
    assert first[1:] == ["0", source.find_id(0)]


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
    assert "must have the training images that it was begun with" in error
    assert message in error
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_state_without_a_digest_is_gone_on_with_and_told(finished, caplog):
    images = images_trained_on(finished / "run")
    check_same_images(finished / "run", images, ([], {"training_data": images.digest()}))
    assert not caplog.text
    check_same_images(finished / "run", images, ([], {}))
    assert "did not record its training images" in caplog.text


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


def images_of(photos, split):
    return fingerprints(find_source(f"folder:{photos}", split))


# What the test split was in version 0.1, by places in the sorted list.
TEST_IMAGES_OF_VERSION_0_1 = ["cat/1.jpg", "cat/8.jpg", "dog/1.jpg", "dog/8.jpg"]


def test_a_run_of_version_0_1_is_evaluated_on_its_own_division(root, capsys, caplog):
    source = find_source(f"by-position:folder:{root / 'photos'}", "test")
    assert [source.find_id(number) for number in source.numbers] == TEST_IMAGES_OF_VERSION_0_1
    run_file = root / "run" / "run.json"
    facts = json.loads(run_file.read_text())
    del facts["division"], facts["id"]
    run_file.write_text(json.dumps(facts))
    (root / "run" / TRAINED_ON).unlink()
    assert data_of(facts) == f"by-position:folder:{root / 'photos'}"
    assert data_of(facts, f"folder:{root / 'photos'}") == data_of(facts)
    assert data_of(facts, "folder:elsewhere") == "folder:elsewhere"
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "a version that did not record what it was trained on" in caplog.text


def test_changes_are_described():
    before = Fingerprints(("a", "b", "c", "d", "e"), ("0",) * 5, ("1", "2", "3", "4", "5"))
    now = Fingerprints(("b", "c", "f"), ("1", "0", "0"), ("2", "9", "9"))
    assert describe_changes(before, now) == (
        "1 image added (f), 3 removed (a, d, e), 1 with other bytes (c), 1 with another label (b)"
    )
    turned = Fingerprints(*(tuple(reversed(field)) for field in (now.ids, now.labels, now.digests)))
    assert describe_changes(now, turned) == "the same images in another order"


def test_odd_ids_are_recorded(tmp_path):
    ids = ("a\tb", "c\nd", "\u00e9", "e\udcff", 'f"g', "")
    images = Fingerprints(ids, ("0",) * len(ids), tuple(map(str, range(len(ids)))))
    assert write_record(tmp_path, images) == images.digest()
    assert images_trained_on(tmp_path) == images
    (tmp_path / TRAINED_ON).write_text("[1, 2]\n")
    with pytest.raises(ValueError, match="must be lines"):
        images_trained_on(tmp_path)
