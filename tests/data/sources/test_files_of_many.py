"""Parquet files, tar files and datasets of Hugging Face: the batches of a folder of the images."""

import io
import itertools
import json
import pathlib
import shutil
import tarfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from keras_vit.data import find_source, load
from keras_vit.data.inputs import find_images
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.photos import broken_images, write_photos

CLASSES = ("china", "flower", "portrait")
KINDS = ("parquet", "webdataset", "hf")
BROKEN = "truncated.png"
PNG = encode(random_image())


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
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def name(kind, root, folder):
    """The same examples in the same order."""
    examples = {}
    for split in SPLITS:
        pairs = [
            (image, int(label))
            for _, image, label in find_source(folder, split).encoded().as_numpy_iterator()
        ]
        examples[split] = [list(column) for column in zip(*pairs, strict=True)]
    return write(kind, root, examples)


def assert_equal(batches, expected):
    batches, expected = list(batches), list(expected)
    assert len(batches) == len(expected) > 0
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(images, expected_images)


def both(name, folder, split="train", **options):
    """Return the batches of the dataset and of the folder."""
    return (load(data, split, 8, 4, **options).as_numpy_iterator() for data in (name, folder))


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train+validation"])
def test_batches_are_those_of_the_folder(name, folder, split):
    assert_equal(*both(name, folder, split))


@pytest.mark.slow
def test_shuffled_batches_are_those_of_the_folder(name, folder):
    assert_equal(*both(name, folder, training=True, flip=True, seed=3))


@pytest.mark.slow
def test_shards_are_those_of_the_folder(name, folder):
    for index in range(3):
        assert_equal(*both(name, folder, shard=(index, 3), training=True))


@pytest.mark.slow
def test_resumed_batches_are_those_of_the_folder(name, folder):
    options = {"training": True, "repeat": True}
    whole = load(folder, "train", 8, 4, **options)
    expected = list(whole.take(6).as_numpy_iterator())
    stopped = load(name, "train", 8, 4, **options)
    list(stopped.take(3).as_numpy_iterator())
    skipped = stopped.info.skipped.reasons
    resumed = load(name, "train", 8, 4, **options).info.dataset.from_step(3, skip=skipped)
    assert_equal(resumed.batches().take(3).as_numpy_iterator(), expected[3:])


@pytest.mark.slow
def test_broken_image_is_named(name, folder):
    dataset, expected = (load(data, "train", 8, 4) for data in (name, folder))
    for batches in (dataset, expected):
        list(batches)
    (id,) = dataset.info.skipped.reasons
    assert [*dataset.info.skipped.reasons.values()] == [*expected.info.skipped.reasons.values()]
    assert dataset.info.dataset.source.find_numbers([id]) == [5]


def test_predictions_read_the_images_of_the_folder(name, folder):
    rows, expected = (find_images([data], "train") for data in (name, folder))
    for start, stop in ((0, 7), (4, 12), (2, 3)):
        paths = expected.columns(start, stop)["path"]
        read = rows.columns(start, stop)["bytes"]
        assert [*read] == [pathlib.Path(path).read_bytes() for path in paths]


def test_class_names(name):
    assert find_source(name, "test").class_names == CLASSES


@pytest.mark.slow
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


def test_label_changes_the_digest(kind, tmp_path):
    images = [PNG] * 4
    digests = []
    for part, labels in enumerate(([0, 1, 2, 0], [0, 1, 2, 1])):
        (tmp_path / str(part)).mkdir()
        name = write(kind, tmp_path / str(part), dict.fromkeys(SPLITS, (images, labels)))
        digests.append(find_source(name, "train").digest())
    assert digests[0] != digests[1]


def test_copy_has_the_digest_of_the_original(kind, tmp_path):
    examples = dict.fromkeys(SPLITS, ([PNG] * 4, [0, 1, 2, 0]))
    name = write(kind, tmp_path, examples)
    shutil.copytree(tmp_path / kind, tmp_path / "copy")
    copied = name.replace(f"{tmp_path / kind}", f"{tmp_path / 'copy'}")
    assert find_source(copied, "test").digest() == find_source(name, "test").digest()


@pytest.mark.parametrize("name", ["parquet:a/*.pq", "webdataset:{0..9}.tar", "hf:here"])
def test_paths_are_absolute(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    kind, _, path = name.partition(":")
    assert absolute_name(name) == f"{kind}:{tmp_path / path}"


def test_name_of_the_hub_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_name("hf:uoft-cs/cifar10:plain_text") == "hf:uoft-cs/cifar10:plain_text"


# Tar files.


@pytest.mark.parametrize("left", [200, 512 + 100, -100, 0], ids=str)
def test_truncated_tar(left, tmp_path):
    """It ends in a header, in an image, in the last member, or after it without the end mark."""
    path = tmp_path / "a.tar"
    write_tar(path, tar_files([PNG] * 4, [0, 1, 0, 1]))
    contents = path.read_bytes()
    blocks = -(-len(contents.rstrip(b"\0")) // tarfile.BLOCKSIZE)
    path.write_bytes(contents[: left if left > 0 else blocks * tarfile.BLOCKSIZE + left])
    with pytest.raises(ValueError, match=r"complete tar files.*Received: '.*a\.tar'"):
        find_source(f"webdataset:{path}", "train")


def test_compressed_tar(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.png"))
    with pytest.raises(ValueError, match="without compression"):
        find_source(f"webdataset:{path}", "train")


def test_names_and_labels_in_a_tar(tmp_path):
    files = {
        "x/1.png": PNG,
        "x/1.cls": b" dog\n",
        "y/1.PNG": PNG,
        "y/1.json": b'{"label": "cat"}',
        "y/1.txt": b"a caption",
        "2.png": PNG,
    }
    write_tar(tmp_path / "a.tar", files)
    source = find_source(f"webdataset:{tmp_path}/a.tar", "train+validation+test")
    assert source.class_names == ("cat", "dog")
    assert source.labels().tolist() == [1, 0, -1]
    assert [*map(source.find_id, range(3))] == ["a.tar#x/1.png", "a.tar#y/1.PNG", "a.tar#2.png"]
    assert source.left_out == {"not an image or a label (.txt)": 1}


@pytest.mark.slow
def test_image_without_a_label_is_named(tmp_path):
    write_tar(tmp_path / "a.tar", {"1.png": PNG, "1.cls": b"1", "2.png": PNG})
    dataset = load(f"webdataset:{tmp_path}/a.tar", "train+validation+test", 8, 2)
    with pytest.raises(ValueError, match="label=-1 for a.tar#2.png"), explaining_errors(dataset):
        list(dataset)


def test_range_needs_every_file(tmp_path):
    for number in ("08", "10"):
        write_tar(tmp_path / f"{number}.tar", tar_files([PNG], [0]))
    with pytest.raises(ValueError, match=r"without '.*09\.tar'"):
        find_source(f"webdataset:{tmp_path}/{{08..10}}.tar", "train")


# Tables.


def write_table(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return f"parquet:{path}"


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ({"label": [0]}, "image"),
        ({"image": [PNG]}, "label"),
        ({"image": [PNG], "fine": [0], "coarse": [0]}, "label"),
        ({"png": [PNG], "mask": [PNG], "label": [0]}, "image"),
    ],
)
def test_missing_column(columns, missing, tmp_path):
    found = ", ".join(columns)
    with pytest.raises(ValueError, match=f"column '{missing}'") as error:
        find_source(write_table(tmp_path / "a.parquet", **columns), "train")
    assert all(column in str(error.value).partition("Received")[2] for column in found.split(", "))


@pytest.mark.parametrize("label", ["fine", "coarse"])
def test_chosen_column(label, tmp_path):
    columns = {"fine": ["cat", "dog", "cat"], "coarse": [0, None, 2]}
    name = write_table(tmp_path / "a.parquet", img=[PNG] * 3, **columns)
    source = find_source(f"{name}#{label}", "train+validation+test")
    names, labels = {"fine": (("cat", "dog"), [0, 1, 0]), "coarse": (("0", "1", "2"), [0, -1, 2])}[
        label
    ]
    assert source.class_names == names
    assert source.labels().tolist() == labels


def test_files_of_other_columns(tmp_path):
    write_table(tmp_path / "a.parquet", image=[PNG], label=[0])
    write_table(tmp_path / "b.parquet", image=[PNG], label_of=[0])
    with pytest.raises(ValueError, match="must have the same columns"):
        find_source(f"parquet:{tmp_path}/*.parquet", "train")


def test_truncated_parquet_file(tmp_path):
    name = write_table(tmp_path / "a.parquet", image=[PNG], label=[0])
    path = tmp_path / "a.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"(?s)Parquet.*a\.parquet"):
        find_source(name, "train")


@pytest.mark.slow
def test_damaged_rows(tmp_path):
    """Rows are read one after another, so those after the damage are missing."""
    path = tmp_path / "a.parquet"
    write_parquet(path, [PNG] * 20, [0, 1] * 10, rows=10)
    contents = bytearray(path.read_bytes())
    # The first page header.
    contents[4:40] = bytes(36)
    path.write_bytes(contents)
    dataset = load(f"parquet:{path}", "train", 8, 4)
    error = pytest.raises(ValueError, match="All 14 examples must be read")
    with error, explaining_errors(dataset):
        list(dataset)


def test_zeros_at_the_end_of_an_image(tmp_path):
    name = write_table(tmp_path / "a.parquet", image=[PNG + bytes(3), None], label=[0, 1])
    examples = find_source(name, "train+validation+test").examples.as_numpy_iterator()
    assert [payload for _, payload, _ in examples] == [PNG + bytes(3), b""]


def test_workers_read_whole_files(tmp_path):
    for number in range(4):
        write_table(tmp_path / f"{number}.parquet", image=[PNG] * 20, label=[0, 1] * 10)
    name, split = f"parquet:{tmp_path}/*", "train"
    shards = [find_source(name, split, shard=(index, 2)).numbers.tolist() for index in range(2)]
    assert sorted(itertools.chain(*shards)) == find_source(name, split).numbers.tolist()
    assert {number // 20 for number in shards[0]} == {0, 2}


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_ranges_of_row_groups(rows, tmp_path):
    """Whatever the row groups are, the examples of a range are read with their own numbers."""
    images = [PNG + bytes([number]) for number in range(150)]
    for part, of_file in enumerate((images[:50], images[50:])):
        path = tmp_path / f"train-{part}.parquet"
        write_parquet(path, of_file, [0] * len(of_file), rows=rows)
    source = find_source(f"parquet:{tmp_path}/*", "validation")
    wanted = source.numbers[3:-4]
    found = [*source.examples_with(wanted).as_numpy_iterator()]
    assert [(number, payload) for number, payload, _ in found] == [(n, images[n]) for n in wanted]


def test_splits_are_seven_one_two(kind, tmp_path):
    datasets = {"train": ([PNG] * 20, [0, 1, 2, 0] * 5)}
    name = write(kind, tmp_path, datasets).replace("{split}", "train")
    sources = [find_source(name, split) for split in SPLITS]
    assert [source.num_examples for source in sources] == [14, 2, 4]
    assert sorted(np.concatenate([source.numbers for source in sources])) == [*range(20)]


# Datasets of Hugging Face.


@pytest.mark.slow
def test_directory_of_the_hub(tmp_path, monkeypatch):
    """`datasets` reads the Parquet files that it uploads."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    images, labels = [PNG + bytes([number]) for number in range(12)], [0, 1, 2] * 4
    write("parquet", tmp_path, dict.fromkeys(SPLITS, (images, labels)))
    source = find_source(f"hf:{tmp_path / 'parquet'}", "test")
    assert [payload for _, payload, _ in source.encoded().as_numpy_iterator()] == images
    assert source.class_names == CLASSES


@pytest.mark.slow
def test_images_that_are_only_paths(tmp_path, monkeypatch):
    """Their contents would not be in the digest."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write_folder(tmp_path / "photos")
    dataset = load(f"hf:{tmp_path / 'photos'}", "train", 8, 4)
    with pytest.raises(ValueError, match="no bytes of this image"), explaining_errors(dataset):
        list(dataset)


def test_the_first_of_two_examples_of_one_name_counts(tmp_path):
    first = {"a.png": encode(random_image()), "a.cls": b"1", "b.png": b"", "b.cls": b"0"}
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, content in [*first.items(), ("a.png", b"other"), ("a.cls", b"0")]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        # An empty directory at the end, and a link.
        for kind, name in ((tarfile.LNKTYPE, "c.png"), (tarfile.DIRTYPE, "notes")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "a.png" if kind == tarfile.LNKTYPE else ""
            tar.addfile(member)
    source = find_source(f"webdataset:{tmp_path}/x.tar", "train+validation+test")
    assert source.labels().tolist() == [1, 0]
    assert source.left_out["a link in a tar file"] == 1


def test_identifiers_are_no_classes(tmp_path):
    table = {"image": [encode(random_image())] * 3, "when": [10**9, 10**9 + 1, 10**9 + 2]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="must be classes, from 0 to less than 1,000,000"):
        find_source(f"parquet:{tmp_path}/{{split}}.parquet", "train")


def test_splits_with_other_class_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    splits = {}
    for split, names in {"train": ["cat", "dog"], "test": ["dog", "cat"]}.items():
        kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
        rows = {"image": [{"bytes": PNG, "path": None}] * 2, "label": [0, 1]}
        splits[split] = datasets.Dataset.from_dict(rows, datasets.Features(kinds))
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match="must have the same class names"):
        find_source(f"hf:{tmp_path}/saved", "train")
