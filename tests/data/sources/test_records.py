"""TFRecord files: written, read, sharded, damaged."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import find_source, load, write_records
from keras_vit.data.digest import scan_records
from keras_vit.data.inputs import find_images
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.source import from_arrays
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, identify, random_image
from tests.fixtures.photos import write_photos
from tests.fixtures.records import write_tfrecord


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("data") / "photos", 12, size=(24, 20))


@pytest.fixture(scope="module")
def files(photos):
    """The same photographs in TFRecord files, those for training in three."""
    for split in SPLITS:
        source = find_source(f"folder:{photos}", split)
        num_files = 3 if split == "train" else 1
        write_records(source, photos.parent / "records", split, num_files)
    return photos.parent / "records"


def as_example(**features):
    """The bytes of a record with lists of bytes or of integers."""
    kinds = {bytes: ("bytes_list", tf.train.BytesList), int: ("int64_list", tf.train.Int64List)}
    lists = {
        name: tf.train.Feature(**{field: kind(value=values)})
        for name, values in features.items()
        for field, kind in [kinds[type(values[0])]]
    }
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()


PNG = tf.io.encode_png(np.zeros((4, 4, 3), "uint8")).numpy()
GOOD = [as_example(image=[PNG], label=[i % 2]) for i in range(12)]


def write_raw(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    (path.parent / "labels.txt").write_text("cat\ndog\n", encoding="utf-8-sig")
    return f"tfrecord:{path.parent}/*"


def read_all(name, **options):
    dataset = load(name, "train+validation+test", 4, 4, **options)
    with explaining_errors(dataset):
        labels = [label for _, labels in dataset.as_numpy_iterator() for label in labels]
    return labels, dataset


def rows(name, split, **options):
    return identify(list(load(name, split, 8, 5, **options).as_numpy_iterator()))


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train+validation"])
def test_records_have_the_images_of_the_folder(files, photos, split):
    name = f"tfrecord:{files}/{{split}}-*"
    np.testing.assert_array_equal(rows(name, split), rows(f"folder:{photos}", split))
    dataset = load(name, split, 8, 5)
    assert dataset.class_names == ("china", "flower", "portrait")
    assert dataset.info.num_examples == len(rows(name, split))


def test_records_are_shuffled_in_the_file(files):
    labels = np.concatenate([y for _, y in load(f"tfrecord:{files}/train-*", "train", 8, 5)])
    assert (np.diff(labels) < 0).any()


@pytest.mark.slow
def test_workers_together_have_every_record_once(files):
    name = f"tfrecord:{files}/{{split}}-*"
    parts = [rows(name, "train", shard=(i, 5), training=True) for i in range(5)]
    together = np.concatenate(parts)
    np.testing.assert_array_equal(together[np.lexsort(together.T)], rows(name, "train"))


@pytest.mark.slow
def test_workers_share_out_a_part_of_one_file(files, tmp_path):
    whole = (files / "train-00000-of-00003.tfrecord").read_bytes() * 4
    (tmp_path / "all.tfrecord").write_bytes(whole)
    (tmp_path / "labels.txt").write_text("china\nflower\nportrait\n")
    name = f"tfrecord:{tmp_path}/*"
    parts = [find_source(name, split).numbers for split in SPLITS]
    every = find_source(name, "+".join(SPLITS)).numbers
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), every)
    for split, part in zip(SPLITS, parts, strict=True):
        shards = [find_source(name, split, shard=(index, 2)) for index in range(2)]
        assert abs(shards[0].num_examples - shards[1].num_examples) <= 1
        together = np.sort(np.concatenate([shard.numbers for shard in shards]))
        np.testing.assert_array_equal(together, part)
        read = [number for number, *_ in shards[1].examples.as_numpy_iterator()]
        np.testing.assert_array_equal(read, shards[1].numbers)


def test_ids_name_file_and_record(files):
    source = find_source(f"tfrecord:{files}/{{split}}-*", "train")
    ids = [source.find_id(number) for number in source.numbers]
    assert min(ids) == "train-00000-of-00003.tfrecord#0"
    assert len(set(ids)) == source.num_examples
    assert set(source.find_numbers(set(ids[:4]))) == set(source.numbers[:4])


@pytest.mark.slow
@pytest.mark.parametrize("label", [[0, 1], [], [2**32], [-(2**32)], [2]])
def test_a_wrong_label_is_refused_by_its_id(tmp_path, label):
    wrong = as_example(image=[PNG], **({"label": label} if label else {}))
    name = write_raw(tmp_path / "a.tfrecord", [*GOOD, wrong])
    with pytest.raises(ValueError, match=r"label=-?\d+ for a.tfrecord#12"):
        read_all(name)


def test_records_without_one_image_are_skipped(tmp_path):
    wrong = [as_example(image=[PNG, PNG], label=[0]), as_example(label=[0])]
    labels, dataset = read_all(write_raw(tmp_path / "a.tfrecord", [*GOOD, *wrong]))
    assert len(labels) == 12
    assert list(dataset.info.skipped.reasons) == ["a.tfrecord#12", "a.tfrecord#13"]
    assert dataset.info.num_examples == 14


def test_what_is_no_example_is_missed(tmp_path):
    with pytest.raises(ValueError, match="All 13 examples must be read. Received: 12"):
        read_all(write_raw(tmp_path / "a.tfrecord", [*GOOD, b"no example"]))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "received"), [(0.55, ""), (0.99, "11")])
def test_records_whose_checksum_is_wrong_are_missed(tmp_path, part, received):
    name = write_raw(tmp_path / "a.tfrecord", GOOD)
    damaged = bytearray((tmp_path / "a.tfrecord").read_bytes())
    damaged[int(part * len(damaged))] ^= 255
    (tmp_path / "a.tfrecord").write_bytes(damaged)
    with pytest.raises(ValueError, match=f"All 12 examples must be read. Received: {received}"):
        read_all(name)


def test_each_file_has_the_features_of_its_own_writer(tmp_path):
    write_raw(tmp_path / "a.tfrecord", GOOD)
    write_raw(tmp_path / "empty.tfrecord", [])
    others = [as_example(**{"image/encoded": [PNG], "image/class/label": [i % 2]}) for i in (0, 1)]
    write_raw(tmp_path / "b.tfrecord", others)
    (tmp_path / "labels.txt").rename(tmp_path / "label.labels.txt")
    labels, dataset = read_all(f"tfrecord:{tmp_path}/*.tfrecord")
    assert len(labels) == dataset.info.num_examples == 14
    assert dataset.class_names == ("cat", "dog")


def test_a_truncated_file_is_refused(files, tmp_path):
    whole = (files / "test-00000-of-00001.tfrecord").read_bytes()
    assert scan_records(files / "test-00000-of-00001.tfrecord")[0] == 6
    (tmp_path / "test.tfrecord").write_bytes(whole[:-3])
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match=r"complete TFRecord files.*test.tfrecord.*damaged"):
        find_source(f"tfrecord:{tmp_path}/*.tfrecord", "test")


def test_nothing_is_written_over(files, photos, tmp_path):
    source = find_source(f"folder:{photos}", "test")
    with pytest.raises(ValueError, match="must not have files of the split"):
        write_records(source, files, "test")
    (tmp_path / "labels.txt").write_text("others\n")
    with pytest.raises(ValueError, match="class names in `folder` must be those"):
        write_records(source, tmp_path, "test")


@pytest.fixture
def damaged(tmp_path):
    """Twelve records, with one flipped bit in the image of the seventh."""
    file = tmp_path / "a.tfrecord"
    write_tfrecord(file, seed=0)
    contents = bytearray(file.read_bytes())
    contents[len(contents) * 13 // 24] ^= 1
    file.write_bytes(contents)
    return f"tfrecord:{file}"


def test_sound_records_are_not_taken_for_broken_images(damaged):
    with pytest.raises(ValueError, match=r"a file is damaged. Received: a\.tfrecord#6, "):
        find_images([damaged]).columns(0, 9)


def test_incomplete_and_mixed_shards_are_refused(tmp_path):
    for i in range(3):
        name = write_raw(tmp_path / f"a-train-0000{i}-of-00003.tfrecord", GOOD[:4])
    assert find_source(name, "train+validation+test").num_examples == 12
    mixed = write_raw(tmp_path / "a-train-00000-of-00001.tfrecord", GOOD[:4])
    with pytest.raises(ValueError, match="of 00001 and of 00003"):
        find_source(mixed, "train")
    (tmp_path / "a-train-00000-of-00001.tfrecord").unlink()
    (tmp_path / "a-train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(ValueError, match="Received: 2 files .*a-train-', of 00003"):
        find_source(name, "train")


def test_a_file_of_two_splits_is_refused(tmp_path):
    for name in ("train-0", "train-test"):
        write_raw(tmp_path / f"{name}.tfrecord", GOOD)
    with pytest.raises(ValueError, match="to one split.*train-test.tfrecord' in several"):
        find_source(f"tfrecord:{tmp_path}/*{{split}}*", "train")


def test_examples_that_are_missing_are_noticed(tmp_path):
    files = np.array([encode(random_image(seed=number)) for number in range(3)], object)
    made = from_arrays(files, np.array([0, 1, 0]), ("cat", "dog"), find_id="image#{}".format)
    less = dataclasses.replace(made, examples=made.examples.take(2))
    with pytest.raises(ValueError, match="All 3 examples .* Received: 2 read, 2 decoded"):
        write_records(less, tmp_path, "train")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("labels", ["cat\ncat\n", "cat\nCat\n", "cat\n"])
def test_class_names_that_are_not_distinct_are_refused(labels, tmp_path):
    name = write_raw(tmp_path / "a.tfrecord", GOOD)
    (tmp_path / "labels.txt").write_text(labels)
    with pytest.raises(ValueError, match="The class names of 'tfrecord:"):
        find_source(name, "train")


def test_records_of_several_folders_have_the_same_classes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_raw(tmp_path / name / "a.tfrecord", GOOD)
    (tmp_path / "two" / "labels.txt").write_text("ant\ndog\n")
    with pytest.raises(ValueError, match="must have the same class names.*one.*two"):
        find_source(f"tfrecord:{tmp_path}/*/*", "train")
