"""No image changes its split when others are added, deleted or renamed."""

import collections
import pathlib
import random
import unicodedata

import numpy as np
import pytest

from keras_vit.data import find_source
from keras_vit.data.sources.folder import RECORD, divide
from keras_vit.data.sources.source import stratified_subset
from keras_vit.data.sources.splits import SPLITS, split_ranges
from tests.fixtures.images import write_folder

SHARES = {"train": (0.0, 0.7), "validation": (0.7, 0.8), "test": (0.8, 1.0)}


def splits_of(root):
    """The split of each image of a folder, through the package's own way to it."""
    found = {}
    for split in SPLITS:
        source = find_source(f"folder:{root}", split)
        ids = [source.find_id(number) for number in source.numbers.tolist()]
        assert not set(ids) & set(found)
        found |= dict.fromkeys(ids, split)
    return found


@pytest.mark.slow
def test_400_files_keep_their_splits_in_a_thousand_additions_and_deletions(tmp_path):
    rng = random.Random(0)
    classes = {
        name: [f"{name}/{rng.getrandbits(64):x}.jpg" for _ in range(200)] for name in ("cat", "dog")
    }
    division = divide(tmp_path, classes, SHARES)
    for _ in range(1000):
        name = rng.choice(list(classes))
        if rng.random() < 0.5:
            classes[name].remove(rng.choice(classes[name]))
        else:
            classes[name].append(f"{name}/{rng.getrandbits(64):x}.jpg")
        after = divide(tmp_path, classes, SHARES)
        assert all(after[path] == split for path, split in division.items())
        division = after
        for paths in classes.values():
            counts = collections.Counter(division[path] for path in paths)
            for split, (start, stop) in SHARES.items():
                assert counts[split] / len(paths) == pytest.approx(stop - start, abs=0.03)


def test_every_machine_divides_a_folder_alike(tmp_path):
    names = ["é.jpg", "b.jpg", "c/d.jpg", *(f"{number}.jpg" for number in range(30))]
    one = {"cat": [f"cat/{name}" for name in names]}
    # macOS may list the decomposed form.
    other = {"cat": [unicodedata.normalize("NFD", path) for path in reversed(one["cat"])]}
    divisions = []
    for number, classes in enumerate((one, other)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = divide(folder, classes, SHARES)
        divisions.append({unicodedata.normalize("NFC", path): found[path] for path in found})
    assert divisions[0] == divisions[1]
    # Written down once and for all: hashes must not depend on the machine or the Python process.
    assert collections.Counter(divisions[0].values()) == {"train": 23, "validation": 3, "test": 7}
    assert divisions[0]["cat/0.jpg"] == "train"


def test_a_copied_folder_that_spells_accents_in_another_way_keeps_its_division(tmp_path):
    paths = [f"thé/é{number}.jpg" for number in range(40)]
    # Half of the files are added later, so that quotas have decided, too.
    divide(tmp_path, {"thé": paths[::2]}, SHARES)
    before = divide(tmp_path, {"thé": paths}, SHARES)
    other = [unicodedata.normalize("NFD", path) for path in reversed(paths)]
    after = divide(tmp_path, {unicodedata.normalize("NFD", "thé"): other}, SHARES)
    assert {unicodedata.normalize("NFC", path): after[path] for path in other} == before


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
def test_a_class_of_a_few_images_is_trained_on(tmp_path, count):
    classes = {"cat": [f"cat/{number}" for number in range(count)]}
    counts = collections.Counter(divide(tmp_path, classes, SHARES).values())
    assert counts["train"] == max(1, round(0.7 * count))
    if count == 10:
        assert counts == {"train": 7, "validation": 1, "test": 2}


def test_a_file_that_comes_back_has_its_split_again(tmp_path):
    root = write_folder(tmp_path / "photos", count=12)
    before = splits_of(root)
    kept = {path: path.read_bytes() for path in sorted(root.glob("cat/*"))[:10]}
    for path in kept:
        path.unlink()
    splits_of(root)
    for path, encoded in kept.items():
        path.write_bytes(encoded)
    assert splits_of(root) == before


def test_a_folder_that_cannot_be_written_is_divided_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*arguments, **options):
        raise PermissionError("read-only file system")

    root = write_folder(tmp_path / "photos", count=10)
    monkeypatch.setattr(pathlib.Path, "write_text", refuse)
    found = splits_of(root)
    assert collections.Counter(found.values()) == {"train": 14, "validation": 2, "test": 4}
    assert "cannot be recorded" in caplog.text


def test_a_damaged_record_is_an_error(tmp_path):
    root = write_folder(tmp_path / "photos", count=10)
    splits_of(root)
    (root / RECORD).write_text("{")
    with pytest.raises(ValueError, match="must be the division"):
        find_source(f"folder:{root}", "train")


@pytest.mark.parametrize(
    "given", [["train"], ["train", "test"], ["train", "validation"], list(SPLITS)]
)
def test_splits_do_not_overlap(given):
    parts = [part for split in SPLITS for part in split_ranges(split, given)]
    for index, (source, start, stop) in enumerate(parts):
        assert source in given
        assert start < stop
        for other, other_start, other_stop in parts[:index]:
            assert source != other or start >= other_stop or stop <= other_start


def test_parts_cover_every_example_of_each_class_once():
    labels = np.repeat([0, 1, 2], [10, 1, 37])
    parts = [stratified_subset(labels, *ends) for ends in SHARES.values()]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(48))
    np.testing.assert_array_equal(np.bincount(labels[parts[0]]), [7, 1, 26])
