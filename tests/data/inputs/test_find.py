"""Images to predict: by datasets, folders, files and Parquet."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from keras_vit.data import find_source, write_records
from keras_vit.data.inputs import absolute_names, find_images
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, random_image, write_folder

ALL = "+".join(SPLITS)


def labels_by_id(name, split=ALL):
    source = find_source(name, split)
    examples = source.examples.as_numpy_iterator()
    return {source.find_id(int(n)): source.class_names[label] for n, _, label in examples}


def test_paths_are_the_same_from_any_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    expected = (str(tmp_path / "here"), str(tmp_path / "link"), "folder:" + str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path)
    assert absolute_names(("here", "link", "folder:here")) == expected
    monkeypatch.chdir(tmp_path / "here")
    assert absolute_names(("../here", "../here/.")) == expected[:1] * 2


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "photos", count=6)


@pytest.fixture
def records(folder, tmp_path):
    source = find_source(f"folder:{folder}", ALL)
    write_records(source, tmp_path / "records", "train", num_files=3)
    return f"tfrecord:{tmp_path}/records/train-*"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "records", "csv", "digits"])
def test_a_dataset_is_read_in_any_ranges(kind, request, tmp_path):
    if kind == "folder":
        name = f"folder:{request.getfixturevalue('folder')}"
    elif kind == "records":
        name = request.getfixturevalue("records")
    elif kind == "csv":
        paths = request.getfixturevalue("folder").rglob("*.jpg")
        lines = [f"{path.relative_to(tmp_path)},{path.parent.name}\n" for path in paths]
        (tmp_path / "images.csv").write_text("".join(lines))
        name = f"csv:{tmp_path}/images.csv"
    else:
        name = kind
    images = find_images([name])
    whole = images.columns(0, images.num_images)
    assert images.has_labels
    found = dict(zip(whole["id"], whole["label"], strict=True))
    if kind != "csv":
        assert found == labels_by_id(name)
    else:
        assert images.is_multi_label
        assert all(id.split("/")[1] == label for id, (label,) in found.items())
    step = max(images.num_images // 5, 2)
    parts = [
        images.columns(start, min(start + step, images.num_images))
        for start in range(0, images.num_images, step)
    ]
    for column, values in whole.items():
        assert [value for part in parts for value in part[column]] == values.tolist()


def test_a_range_of_records_does_not_read_other_files(records):
    source = find_source(records, ALL)
    near = [int(number) for number, *_ in source.read_range(5, 6).as_numpy_iterator()]
    assert {5, 6} <= set(near) and len(near) < source.num_examples / 2


def test_numbers_that_rise_twice(folder):
    """Those of TensorFlow Datasets whose splits are in another order than their names."""
    source = find_source(f"folder:{folder}", ALL)
    numbers = np.array([10, 11, 2, 3])
    found = [int(number) for number, *_ in source.some(numbers).as_numpy_iterator()]
    assert sorted(found) == [2, 3, 10, 11]


def test_all_images_of_folders_and_files(folder, tmp_path):
    (folder / "notes.txt").write_text("no image")
    (folder / "cat" / "below").mkdir()
    (folder / "cat" / "below" / "more").write_bytes(encode(random_image()))
    images = find_images([str(folder)])
    assert images.num_images == 13 and not images.has_labels
    assert images.left_out == {"not an image (.txt)": 1}
    columns = images.columns(0, 13)
    assert columns["id"][:2].tolist() == ["cat/0.jpg", "cat/1.jpg"]
    assert "cat/below/more" in columns["id"] and "label" not in columns
    missing = str(tmp_path / "missing.jpg")
    named = find_images([str(folder / "cat" / "0.jpg"), missing, str(folder / "dog")])
    ids = named.columns(0, named.num_images)["id"].tolist()
    assert ids[:3] == [str(folder / "cat" / "0.jpg"), missing, str(folder / "dog" / "0.jpg")]


def test_a_folder_comes_before_a_dataset_of_the_same_name(folder, monkeypatch):
    folder.rename(folder.with_name("digits"))
    monkeypatch.chdir(folder.parent)
    assert find_images(["digits"]).num_images == 12


def write_table(path, metadata=None, row_group_size=2, **columns):
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)


@pytest.fixture
def encoded():
    return [encode(random_image(seed=seed)) for seed in range(5)]


def test_parquet_of_hugging_face(encoded, tmp_path):
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    for index, part in enumerate((slice(0, 3), slice(3, 5))):
        structures = [{"bytes": file, "path": None} for file in encoded[part]]
        labels = [0, 1, 1, 0, 7][part]
        metadata = {"huggingface": json.dumps(names)}
        write_table(tmp_path / f"{index}.parquet", metadata, image=structures, label=labels)
    for named in ([tmp_path], [f"{tmp_path}/*.parquet"], sorted(tmp_path.glob("*.parquet"))):
        images = find_images(named)
        columns = images.columns(1, 5)
        assert columns["bytes"].tolist() == encoded[1:]
        assert columns["id"].tolist() == [
            *("0.parquet#1", "0.parquet#2", "1.parquet#0", "1.parquet#1"),
        ]
        assert columns["label"].tolist() == ["dog", "dog", "cat", "7"]
        assert images.columns(0, 1)["id"].tolist() == ["0.parquet#0"]


def test_parquet_of_other_writers(encoded, tmp_path):
    ids, labels = list("abcde"), [["x"], [], ["x", "y"], None, ["z"]]
    write_table(tmp_path / "a.parquet", id=ids, content=encoded, label=labels)
    images = find_images([tmp_path / "a.parquet"])
    columns = images.columns(2, 4)
    assert columns["id"].tolist() == ["c", "d"] and images.is_multi_label
    assert columns["bytes"].tolist() == encoded[2:4]
    assert columns["label"].tolist() == [["x", "y"], None]
    changed = tmp_path / "b.parquet"
    write_table(changed, id=[*ids[:4], "f"], content=encoded, label=labels)
    assert find_images([changed]).digest() != images.digest()


def test_ranges_of_parquet_in_any_order(tmp_path):
    encoded = [bytes([number]) * 3 for number in range(200)]
    for part in range(2):
        write_table(
            tmp_path / f"{part}.parquet",
            bytes=encoded[100 * part : 100 * part + 100],
            row_group_size=37,
        )
    images = find_images([tmp_path])
    for start, stop in ((0, 10), (10, 20), (50, 120), (30, 40), (199, 200), (0, 200), (90, 101)):
        assert images.columns(start, stop)["bytes"].tolist() == encoded[start:stop]


def test_ids_of_files_of_one_name_are_their_paths(encoded, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_table(tmp_path / folder / "0.parquet", bytes=encoded[:1])
    assert find_images([tmp_path]).columns(0, 2)["id"].tolist() == [
        "a/0.parquet#0",
        "b/0.parquet#0",
    ]


def test_a_pattern_of_images(folder):
    images = find_images([f"{folder}/cat/*.jpg"])
    assert images.columns(0, 6)["id"].tolist() == [f"{folder}/cat/{i}.jpg" for i in range(6)]


def empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    return [tmp_path / "empty"]


def no_images(tmp_path):
    write_table(tmp_path / "a.parquet", id=["a"], text=["b"])
    return [tmp_path / "a.parquet"]


def no_rows(tmp_path):
    write_table(tmp_path / "a.parquet", bytes=pyarrow.array([], pyarrow.binary()))
    return [tmp_path / "a.parquet"]


def damaged(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    return [tmp_path / "a.parquet"]


def different(tmp_path):
    write_table(tmp_path / "a.parquet", bytes=[b"a"])
    write_table(tmp_path / "b.parquet", image=[b"a"])
    return [tmp_path]


def table_among_images(tmp_path):
    write_table(tmp_path / "metadata.parquet", bytes=[b"a"])
    (tmp_path / "a.jpg").write_bytes(b"")
    return [tmp_path]


def both(tmp_path):
    write_table(tmp_path / "a.parquet", bytes=[b"a"])
    return [tmp_path / "a.parquet", tmp_path / "a.jpg"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: [], "`images` must name an image. Received: , without any"),
        (lambda folder: ["digits", "a.jpg"], "`images` must be one dataset. Received: digits, a"),
        (empty_folder, "`images` must name an image. Received: .*empty, without any"),
        (no_rows, "`images` must name an image. Received: .*a.parquet, without any"),
        (no_images, "the same column bytes, content, image .*Received: .* with id, text$"),
        (damaged, "Parquet"),
        (different, "the same column bytes, content, image .*and files with other columns"),
        (both, "must be Parquet files or images, not both"),
        (table_among_images, "must be Parquet files or images, not both"),
    ],
)
def test_errors(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        find_images(make(tmp_path))


def test_a_split_is_for_datasets(tmp_path):
    assert find_images(["digits"], split="test").num_images == 359
    with pytest.raises(ValueError, match="`split` is for datasets, .*Received: split='test'"):
        find_images([tmp_path], split="test")


def test_numbers_of_a_source_stay_its_own_after_it_was_changed(folder):
    source = find_source(f"folder:{folder}", ALL)
    part = source.subset(0.5)
    found = [int(number) for number, *_ in part.some(part.numbers).as_numpy_iterator()]
    assert found == part.numbers.tolist() and len(found) < 12
    balanced = source.balanced()
    assert balanced.read_range is None and balanced.read_numbers is None
    np.testing.assert_array_equal(np.unique(balanced.numbers), source.numbers)
