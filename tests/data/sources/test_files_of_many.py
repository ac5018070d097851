"""Parquet files, tar files and datasets of Hugging Face: the batches of a folder of the images."""

import io
import json
import tarfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from keras_vit.data import find_source, load
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.photos import broken_images, write_photos

CLASSES = ("china", "flower", "portrait")
KINDS = ("parquet", "webdataset", "hf")
BROKEN = "truncated.png"


def write_parquet(path, images, labels, names=CLASSES, rows=5):
    """Write a file as `datasets` does when it uploads a split to the Hub."""
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": [*names]}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    structs = [{"bytes": image, "path": None} for image in images]
    table = pyarrow.table({"image": structs, "label": labels}).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, path, row_group_size=rows)


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, contents in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))


def tar_files(images, labels):
    """Return the names and contents of the files of examples, with both forms of labels."""
    files = {}
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        files[f"{index:04d}.png"] = image
        is_number = index % 2
        text = str(label) if is_number else json.dumps({"label": label})
        files[f"{index:04d}.{'cls' if is_number else 'json'}"] = text.encode()
    return files


def write(kind, root, examples):
    """Write the images and labels of each split, and return the name of the dataset."""
    folder = root / kind
    folder.mkdir()
    if kind == "hf":
        datasets = pytest.importorskip("datasets")
        features = datasets.Features(
            image=datasets.Image(), label=datasets.ClassLabel(names=[*CLASSES])
        )
        splits = {
            split: datasets.Dataset.from_dict(
                {"image": [{"bytes": i, "path": None} for i in images], "label": labels}, features
            )
            for split, (images, labels) in examples.items()
        }
        datasets.DatasetDict(splits).save_to_disk(folder / "saved")
        return f"hf:{folder / 'saved'}"
    for split, (images, labels) in examples.items():
        half = len(images) // 2
        for part, rows in enumerate((slice(half), slice(half, None))):
            if kind == "parquet":
                path = folder / f"{split}-{part:05d}-of-00002.parquet"
                write_parquet(path, images[rows], labels[rows])
            else:
                write_tar(folder / f"{split}-{part}.tar", tar_files(images[rows], labels[rows]))
    if kind == "parquet":
        return f"parquet:{folder}"
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return f"webdataset:{folder}/{{split}}-{{0..1}}.tar"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of photographs in three splits, of which one image for training is broken."""
    root = tmp_path_factory.mktemp("data")
    for split in SPLITS:
        write_photos(root / "photos" / split, 4, size=(24, 20))
    (root / "photos" / "train" / "flower" / "001.png").write_bytes(broken_images()[BROKEN])
    return root


@pytest.fixture(scope="module")
def folder(root):
    return f"folder:{root / 'photos'}"


@pytest.fixture(scope="module", params=KINDS)
def name(request, root, folder):
    """The same examples in the same order."""
    examples = {}
    for split in SPLITS:
        pairs = [
            (image, int(label))
            for _, image, label in find_source(folder, split).encoded().as_numpy_iterator()
        ]
        examples[split] = [list(column) for column in zip(*pairs, strict=True)]
    return write(request.param, root, examples)


def assert_equal(batches, expected):
    batches, expected = list(batches), list(expected)
    assert len(batches) == len(expected) > 0
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(images, expected_images)


def both(name, folder, split="train", **options):
    """Return the batches of the dataset and of the folder."""
    return (load(data, split, 8, 4, **options).as_numpy_iterator() for data in (name, folder))


@pytest.mark.parametrize("split", ["test", "train+validation"])
def test_batches_are_those_of_the_folder(name, folder, split):
    assert_equal(*both(name, folder, split))


def test_shuffled_batches_are_those_of_the_folder(name, folder):
    assert_equal(*both(name, folder, training=True, flip=True, seed=3))


def test_shards_are_those_of_the_folder(name, folder):
    for index in range(3):
        assert_equal(*both(name, folder, shard=(index, 3), training=True))


def test_resumed_batches_are_those_of_the_folder(name, folder):
    options = {"training": True, "repeat": True}
    whole = load(folder, "train", 8, 4, **options)
    expected = list(whole.take(6).as_numpy_iterator())
    stopped = load(name, "train", 8, 4, **options)
    list(stopped.take(3).as_numpy_iterator())
    skipped = stopped.info.skipped.reasons
    resumed = load(name, "train", 8, 4, **options).info.dataset.from_step(3, skip=skipped)
    assert_equal(resumed.batches().take(3).as_numpy_iterator(), expected[3:])


def test_broken_image_is_named(name, folder):
    dataset, expected = (load(data, "train", 8, 4) for data in (name, folder))
    for batches in (dataset, expected):
        list(batches)
    (id,) = dataset.info.skipped.reasons
    assert [*dataset.info.skipped.reasons.values()] == [*expected.info.skipped.reasons.values()]
    assert dataset.info.dataset.source.find_numbers([id]) == [5]


def test_class_names(name):
    assert find_source(name, "test").class_names == CLASSES


def test_excluded_examples(name, folder):
    """Their numbers are those of the folder, so are the other examples."""
    options = []
    for data in (name, folder):
        source = find_source(data, "test")
        options.append([source.find_id(number) for number in (2, 7)])
    datasets = [
        load(data, "test", 8, 4, exclude=ids)
        for data, ids in zip((name, folder), options, strict=True)
    ]
    assert_equal(*(dataset.as_numpy_iterator() for dataset in datasets))


def test_fraction_takes_these_examples(name):
    """The examples of `without` are read, whether or not they can be read by number."""
    source = find_source(name, "train").subset(0.5)
    numbers = [number for number, *_ in source.examples.as_numpy_iterator()]
    assert numbers == source.numbers.tolist()


def test_labels_are_read_without_images(name, folder):
    labels = (find_source(data, "train").labels() for data in (name, folder))
    np.testing.assert_array_equal(*labels)


def test_name_is_absolute(name, monkeypatch):
    kind, _, path = name.partition(":")
    relative = path.replace(str(find_parent(path)), "..", 1)
    assert relative != path
    monkeypatch.chdir(find_parent(path) / kind)
    assert absolute_name(f"{kind}:{relative}") == name


def find_parent(path):
    import pathlib

    parts = pathlib.Path(path).parts
    return pathlib.Path(*parts[: next(i for i, p in enumerate(parts) if p in KINDS)])
