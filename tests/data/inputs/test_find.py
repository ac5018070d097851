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
@pytest.mark.parametrize("kind", ["folder", "records", "digits"])
def test_a_dataset_is_read_in_any_ranges(kind, folder, records):
    name = {"folder": f"folder:{folder}", "records": records, "digits": "digits"}[kind]
    images = find_images([name])
    whole = images.columns(0, images.num_images)
    assert images.has_labels
    assert dict(zip(whole["id"], whole["label"], strict=True)) == labels_by_id(name)
    starts = range(0, images.num_images, images.num_images // 5)
    parts = [images.columns(start, min(start + starts.step, starts.stop)) for start in starts]
    for column, values in whole.items():
        assert [value for part in parts for value in part[column]] == values.tolist()


def test_numbers_that_rise_twice(folder):
    """Those of TensorFlow Datasets whose splits are in another order than their names."""
    source = find_source(f"folder:{folder}", ALL)
    numbers = np.array([10, 11, 2, 3])
    found = [int(number) for number, *_ in source.examples_with(numbers).as_numpy_iterator()]
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


def test_images_of_several_folders_have_different_ids(folder):
    ids = find_images([str(folder / "*")]).columns(0, 12)["id"].tolist()
    assert len({*ids}) == len(ids) == 12


def write_table(path, metadata=None, row_group_size=2, **columns):
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)


@pytest.fixture
def encoded():
    return [encode(random_image(seed=seed)) for seed in range(5)]


def test_parquet_of_hugging_face(encoded, tmp_path):
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    metadata = {"huggingface": json.dumps(names)}
    structures = [{"bytes": file, "path": None} for file in encoded]
    write_table(tmp_path / "0.parquet", metadata, image=structures[:3], label=[0, 1, 1])
    write_table(tmp_path / "1.parquet", metadata, image=structures[3:], label=[0, 7])
    for named in ([tmp_path], [f"{tmp_path}/*.parquet"], sorted(tmp_path.glob("*.parquet"))):
        columns = find_images(named).columns(1, 5)
        assert columns["bytes"].tolist() == encoded[1:]
        ids = ["0.parquet#1", "0.parquet#2", "1.parquet#0", "1.parquet#1"]
        assert columns["id"].tolist() == ids
        assert columns["label"].tolist() == ["dog", "dog", "cat", "7"]


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
        rows = encoded[100 * part : 100 * part + 100]
        write_table(tmp_path / f"{part}.parquet", bytes=rows, row_group_size=37)
    images = find_images([tmp_path])
    for start, stop in ((0, 10), (10, 20), (50, 120), (30, 40), (199, 200), (0, 200), (90, 101)):
        assert images.columns(start, stop)["bytes"].tolist() == encoded[start:stop]


def test_ids_of_files_of_one_name_are_their_paths(encoded, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_table(tmp_path / folder / "0.parquet", bytes=encoded[:1])
    ids = find_images([tmp_path]).columns(0, 2)["id"].tolist()
    assert ids == ["a/0.parquet#0", "b/0.parquet#0"]


def test_a_split_is_for_datasets(tmp_path):
    assert find_images(["digits"], split="test").num_images == 359
    with pytest.raises(ValueError, match="`split` is for datasets"):
        find_images([tmp_path], split="test")


@pytest.mark.parametrize(
    ("tables", "images", "message"),
    [
        ([], [], "must name an image"),
        ([{"text": ["b"]}], [], "the same column bytes, content, image"),
        ([{"bytes": [b"a"]}, {"image": [b"a"]}], [], "files with other columns"),
        ([{"bytes": [b"a"]}], ["a.jpg"], "must be Parquet files or images, not both"),
    ],
)
def test_folders_of_which_images_would_be_missed_are_refused(tables, images, message, tmp_path):
    for number, columns in enumerate(tables):
        write_table(tmp_path / f"{number}.parquet", **columns)
    for name in images:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message):
        find_images([tmp_path])
