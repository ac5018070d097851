"""The files that record the images of a run: what they hold, and those that are refused."""

import json
import shutil

import pytest

from keras_vit.checkpoints.runs import RUN_FILE
from keras_vit.data.fingerprints import Fingerprints, describe_changes
from keras_vit.training.runs.trained_on import (
    TRAINED_BEFORE,
    TRAINED_ON,
    images_trained_on,
    record_images,
)


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
    assert record_images(tmp_path, {"training": images}) == {"training": images.digest()}
    assert images_trained_on(tmp_path) == images


def some_images(*digests):
    return Fingerprints(digests, ("0",) * len(digests), digests)


@pytest.fixture
def recorded(tmp_path):
    """A function that makes the directory of a run with an id, which has trained on an image."""

    def record(id, before=None):
        workdir = tmp_path / id
        workdir.mkdir()
        (workdir / RUN_FILE).write_text(json.dumps({"id": id}))
        record_images(workdir, {"training": some_images(id)}, before)
        return workdir

    return record


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda lines: [], "not enough values"),
        (lambda lines: lines[:1], "0 images with a different digest"),
        (lambda lines: lines[1:], "list indices"),
        (lambda lines: [lines[0], lines[1].replace("one", "two")], "1 images with a different"),
        (lambda lines: [lines[0], lines[1][:5]], "Unterminated string"),
        (lambda lines: [*lines, "[1, 2]"], "zip"),
        (lambda lines: ["{}", lines[1]], "'digest'"),
    ],
)
def test_a_damaged_record_is_refused(recorded, damage, what):
    path = recorded("one") / TRAINED_ON
    path.write_text("\n".join(damage(path.read_text().splitlines())))
    with pytest.raises(ValueError, match=f"must be as the run has written it.*{what}"):
        images_trained_on(path.parent)


@pytest.mark.parametrize("place", [shutil.copy, lambda old, new: new.symlink_to(old)])
@pytest.mark.parametrize("name", [TRAINED_ON, TRAINED_BEFORE])
def test_the_record_of_another_run_is_refused(recorded, place, name):
    one, two = (recorded(id, some_images("before")) for id in ("one", "two"))
    (two / name).unlink()
    place(one / name, two / name)
    with pytest.raises(ValueError, match=f"two/{name}.*of the run one, in the .* of the run two"):
        images_trained_on(two)


def test_a_record_of_other_images_before_is_refused(recorded):
    one = recorded("one")
    record_images(one, {"training": some_images("a")}, some_images("b"))
    others = (one / TRAINED_BEFORE).read_text()
    record_images(one, {"training": some_images("a")}, some_images("c"))
    (one / TRAINED_BEFORE).write_text(others)
    with pytest.raises(ValueError, match="with others than the images that the model was trained"):
        images_trained_on(one)


def test_a_missing_record_of_the_images_before_is_logged(recorded, caplog):
    one, two = recorded("one", some_images("before")), recorded("two")
    assert images_trained_on(one).ids == ("before", "one")
    assert images_trained_on(two).ids == ("two",)
    assert not caplog.text
    (one / TRAINED_BEFORE).unlink()
    assert images_trained_on(one).ids == ("one",)
    assert f"{TRAINED_BEFORE} is missing" in caplog.text
