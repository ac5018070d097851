"""No image changes its split when others are added, deleted or renamed."""

import collections
import logging
import pathlib
import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.data import find_source
from keras_vit.data.sources.folder import RECORD, divide
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, random_image, write_folder

SHARES = {"train": (0.0, 0.7), "validation": (0.7, 0.8), "test": (0.8, 1.0)}


def splits_of(root):
    """The split of each image of a folder, through the package's own way to it."""
    found = {}
    for split in SPLITS:
        try:
            source = find_source(f"folder:{root}", split)
        except ValueError as error:
            # A few images have none for validation.
            assert "too few images" in str(error)
            continue
        ids = [source.find_id(number) for number in source.numbers.tolist()]
        assert not set(ids) & set(found)
        found |= dict.fromkeys(ids, split)
    return found


def largest_deviation(classes, division):
    """How far a split's share is from its own in a class of at least 50, in points."""
    deviations = [0.0]
    for paths in classes.values():
        counts = collections.Counter(division[path] for path in paths)
        if len(paths) >= 50:
            deviations += [
                abs(counts[name] / len(paths) - (stop - start))
                for name, (start, stop) in SHARES.items()
            ]
    return 100 * max(deviations)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_400_files_keep_their_splits_in_a_thousand_additions_and_deletions(tmp_path, seed):
    rng = random.Random(seed)
    classes = {
        name: [f"{name}/{rng.getrandbits(64):x}.jpg" for _ in range(200)] for name in ("cat", "dog")
    }
    division = divide(tmp_path, classes, SHARES)
    assert largest_deviation(classes, division) < 0.5
    worst = 0
    for _ in range(1000):
        name = rng.choice(list(classes))
        if rng.random() < 0.5:
            classes[name].remove(rng.choice(classes[name]))
        else:
            classes[name].append(f"{name}/{rng.getrandbits(64):x}.jpg")
        after = divide(tmp_path, classes, SHARES)
        assert all(after[path] == split for path, split in division.items())
        division = after
        worst = max(worst, largest_deviation(classes, division))
    assert worst <= 3


NAMES = st.sampled_from([f"{name}/{number}.jpg" for name in ("a", "b", "c") for number in range(9)])
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "delete", "rename"]), NAMES, NAMES))


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=25)
@given(changes=CHANGES)
def test_files_on_disk_keep_their_splits(tmp_path_factory, changes):
    root = write_folder(tmp_path_factory.mktemp("photos"), ("a", "b", "c"), count=5)
    before = splits_of(root)
    for change, path, other in changes:
        path, other = root / path, root / other
        alone = path.exists() and len(list(path.parent.iterdir())) == 1
        if change == "add" and not path.exists():
            path.write_bytes(encode(random_image()))
        elif change == "delete" and not alone:
            path.unlink(missing_ok=True)
        elif change == "rename" and path.exists() and not alone:
            path.replace(other)
        after = splits_of(root)
        stayed = set(before) & set(after)
        assert {id: after[id] for id in stayed} == {id: before[id] for id in stayed}
        before |= after


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


def test_a_test_folder_of_its_own_leaves_the_rest_divided_in_two(tmp_path):
    write_folder(tmp_path / "train", count=20)
    write_folder(tmp_path / "test", count=2)
    before = splits_of(tmp_path)
    assert collections.Counter(before.values()) == {"train": 36, "validation": 4, "test": 4}
    (tmp_path / "train" / "cat" / "new.jpg").write_bytes(encode(random_image()))
    assert before.items() <= splits_of(tmp_path).items()


def test_what_the_folders_of_splits_are_used_as_is_logged(tmp_path, caplog):
    caplog.set_level(logging.INFO, "keras_vit")
    for name in ("train", "val"):
        write_folder(tmp_path / name, count=10)
    for _ in range(2):
        splits_of(tmp_path)
    line = f"{tmp_path}: train is 90% of train/, validation is 10% of train/, test is val/"
    assert caplog.messages == [line]


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [
        (["train", "val"], "test", "(train 90%, validation 10%)"),
        (["train"], "test", "(train 70%, validation 10%, test 20%)"),
    ],
)
def test_folders_of_splits_that_come_later_are_told(before, after, recorded, tmp_path, caplog):
    for name in before:
        write_folder(tmp_path / name, count=10)
    splits_of(tmp_path)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    write_folder(tmp_path / after, count=3)
    now = splits_of(tmp_path)
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"{tmp_path}: the folder was divided {recorded} when it had other" in line
    assert {now[path] for path in now if path.startswith("test/")} == {"test"}


def test_a_folder_that_cannot_be_written_is_divided_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*arguments, **options):
        raise PermissionError("read-only file system")

    root = write_folder(tmp_path / "photos", count=10)
    monkeypatch.setattr(pathlib.Path, "write_text", refuse)
    with caplog.at_level(logging.WARNING, "keras_vit"):
        found = splits_of(root)
    assert collections.Counter(found.values()) == {"train": 14, "validation": 2, "test": 4}
    assert caplog.text.count("cannot be recorded") == 1
    assert not (root / RECORD).exists()


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
    ],
)
def test_a_damaged_record_is_an_error(tmp_path, damage):
    root = write_folder(tmp_path / "photos", count=10)
    splits_of(root)
    (root / RECORD).write_text(damage)
    with pytest.raises(ValueError, match=r"keras_vit_division.json.* must be the division .*Rec"):
        find_source(f"folder:{root}", "train")
