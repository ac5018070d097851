"""TFRecord files: written, read, sharded, damaged."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import find_source, load, write_records
from keras_vit.data.deduplication.hashes import hash_part
from keras_vit.data.digest import scan_records
from keras_vit.data.inputs.find import find_images
from keras_vit.data.skipped import explaining_errors
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import identify
from tests.fixtures.photos import broken_images, write_photos
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
@pytest.mark.parametrize(("count", "training"), [(2, False), (5, True)])
def test_workers_together_have_every_record_once(files, count, training):
    name = f"tfrecord:{files}/{{split}}-*"
    parts = [rows(name, "train", shard=(i, count), training=training) for i in range(count)]
    together = np.concatenate(parts)
    np.testing.assert_array_equal(together[np.lexsort(together.T)], rows(name, "train"))


@pytest.mark.slow
def test_one_file_is_divided(files):
    name = f"tfrecord:{files}/*"
    sizes = {split: load(name, split, 8, 5).info.num_examples for split in SPLITS}
    assert sum(sizes.values()) == 36
    assert abs(sizes["train"] - 0.7 * 36) <= 2
    parts = np.concatenate([rows(name, split) for split in SPLITS])
    np.testing.assert_array_equal(parts[np.lexsort(parts.T)], rows(name, "+".join(SPLITS)))


@pytest.mark.parametrize("count", [2, 5])
def test_workers_share_out_a_part_of_one_file(files, tmp_path, count):
    whole = (files / "train-00000-of-00003.tfrecord").read_bytes() * 4
    (tmp_path / "all.tfrecord").write_bytes(whole)
    (tmp_path / "labels.txt").write_text("china\nflower\nportrait\n")
    name = f"tfrecord:{tmp_path}/*"
    for split in ("train", "validation"):
        source = find_source(name, split)
        shards = [find_source(name, split, shard=(index, count)) for index in range(count)]
        sizes = [shard.num_examples for shard in shards]
        assert max(sizes) - min(sizes) <= 1
        together = np.sort(np.concatenate([shard.numbers for shard in shards]))
        np.testing.assert_array_equal(together, source.numbers)
        read = [number for number, *_ in shards[1].examples.as_numpy_iterator()]
        np.testing.assert_array_equal(read, shards[1].numbers)


def test_ids_name_file_and_record(files):
    source = find_source(f"tfrecord:{files}/{{split}}-*", "train")
    ids = [source.find_id(number) for number in source.numbers]
    assert sorted(ids)[0] == "train-00000-of-00003.tfrecord#0"
    assert len(set(ids)) == source.num_examples
    left = load(f"tfrecord:{files}/{{split}}-*", "train", 8, 5, exclude=ids[:4])
    assert left.info.num_examples == len(ids) - 4
    assert len(identify(list(left.as_numpy_iterator()))) == len(ids) - 4


@pytest.mark.parametrize("names", [("image", "label"), ("image/encoded", "image/class/label")])
def test_names_of_other_writers(tmp_path, names):
    records = [as_example(**{names[0]: [PNG], names[1]: [i]}) for i in [0, *[1] * 9]]
    write_raw(tmp_path / "a.tfrecord", records)
    (tmp_path / "labels.txt").rename(tmp_path / "label.labels.txt")
    dataset = load(f"tfrecord:{tmp_path}/*.tfrecord", "train+validation+test", 4, 10)
    assert dataset.class_names == ("cat", "dog")
    assert next(dataset.as_numpy_iterator())[1].tolist() == [0, *[1] * 9]


@pytest.mark.slow
def test_broken_and_wrongly_labelled_records(tmp_path):
    pictures = [PNG, *list(broken_images().values())[:3]] * 3 + [PNG]
    good = [as_example(image=[picture], label=[0]) for picture in pictures]
    write_raw(tmp_path / "good.tfrecord", good)
    wrong = [as_example(image=[PNG], label=[label]) for label in (1, 2, 0)]
    write_raw(tmp_path / "wrong.tfrecord", wrong)
    dataset = load(f"tfrecord:{tmp_path}/good*", "train+validation+test", 4, 2)
    assert sum(len(labels) for _, labels in dataset.as_numpy_iterator()) == 4
    assert dataset.info.skipped.ids[:2] == ["good.tfrecord#1", "good.tfrecord#10"]
    dataset = load(f"tfrecord:{tmp_path}/wrong*", "train", 4, 2)
    message = r"A label must be from 0 to 1.*Received: label=2 of wrong.tfrecord#1"
    with pytest.raises(ValueError, match=message), explaining_errors(dataset):
        list(dataset.as_numpy_iterator())


@pytest.mark.slow
@pytest.mark.parametrize("label", [[0, 1], [], [2**32], [-(2**32)], [2]])
def test_a_wrong_label_is_refused_by_its_id(tmp_path, label):
    wrong = as_example(image=[PNG], **({"label": label} if label else {}))
    name = write_raw(tmp_path / "a.tfrecord", [*GOOD, wrong])
    with pytest.raises(ValueError, match=r"label=-?\d+ of a.tfrecord#12"):
        read_all(name)


def test_records_without_one_image_are_skipped(tmp_path):
    wrong = [as_example(image=[PNG, PNG], label=[0]), as_example(label=[0])]
    labels, dataset = read_all(write_raw(tmp_path / "a.tfrecord", [*GOOD, *wrong]))
    assert len(labels) == 12
    assert dataset.info.skipped.ids == ["a.tfrecord#12", "a.tfrecord#13"]
    assert dataset.info.num_examples == 14


@pytest.mark.parametrize(
    "wrong", [as_example(image=[1], label=[0]), b"no example"], ids=["number", "text"]
)
def test_what_is_no_example_is_missed(tmp_path, wrong):
    with pytest.raises(ValueError, match="All 13 examples must be read. Received: 12"):
        read_all(write_raw(tmp_path / "a.tfrecord", [*GOOD, wrong]))


@pytest.mark.parametrize(("part", "received"), [(0.55, ""), (0.99, "11")])
def test_records_whose_checksum_is_wrong_are_missed(tmp_path, part, received):
    name = write_raw(tmp_path / "a.tfrecord", GOOD)
    damaged = bytearray((tmp_path / "a.tfrecord").read_bytes())
    damaged[int(part * len(damaged))] ^= 255
    (tmp_path / "a.tfrecord").write_bytes(damaged)
    with pytest.raises(ValueError, match=f"All 12 examples must be read. Received: {received}"):
        read_all(name)


def test_each_file_has_its_own_features(tmp_path):
    write_raw(tmp_path / "a.tfrecord", GOOD)
    write_raw(tmp_path / "empty.tfrecord", [])
    others = [as_example(**{"image/encoded": [PNG], "image/class/label": [i % 2]}) for i in (0, 1)]
    labels, dataset = read_all(write_raw(tmp_path / "b.tfrecord", others))
    assert len(labels) == dataset.info.num_examples == 14
    assert dataset.class_names == ("cat", "dog")


@pytest.mark.parametrize("labels", [(1, 1), (1, 2)])
def test_labels_that_start_at_1_are_refused(tmp_path, labels):
    records = [as_example(**{"image/encoded": [PNG], "image/class/label": [i]}) for i in labels]
    name = write_raw(tmp_path / "a.tfrecord", records)
    with pytest.raises(ValueError, match="must start at 0.*a line `background` first"):
        read_all(name)
    (tmp_path / "labels.txt").write_text("background\ncat\ndog\n")
    assert sorted(read_all(name)[0]) == list(labels)


def test_a_rare_first_class_is_not_missing(tmp_path):
    """8 of 88 images, after all others."""
    labels = [1] * 80 + [0] * 8
    records = [as_example(**{"image/encoded": [PNG], "image/class/label": [i]}) for i in labels]
    assert sorted(read_all(write_raw(tmp_path / "a.tfrecord", records))[0]) == sorted(labels)


def test_ids_have_folders_where_names_repeat(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for file in ("part", split):
            write_raw(tmp_path / split / f"{file}.tfrecord", GOOD[:4])
    ids = {}
    for split in ("train", "test"):
        source = find_source(f"tfrecord:{tmp_path}/{{split}}/*", split)
        ids[split] = {source.find_id(number) for number in source.numbers.tolist()}
    assert not ids["train"] & ids["test"]
    names = {id.partition("#")[0] for id in ids["train"]}
    assert names <= {"train/part.tfrecord", "train.tfrecord"}


@pytest.mark.parametrize("length", [3, 20])
def test_damaged_file_is_named(files, tmp_path, length):
    whole = (files / "test-00000-of-00001.tfrecord").read_bytes()
    assert scan_records(files / "test-00000-of-00001.tfrecord")[0] == 6
    (tmp_path / "test.tfrecord").write_bytes(whole[:-length])
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match=r"complete TFRecord files.*test.tfrecord.*damaged"):
        load(f"tfrecord:{tmp_path}/*.tfrecord", "test", 8, 4)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda file: None, "must name TFRecord files. Received: .*without any"),
        (
            lambda root: (write_raw(root / "a.tfrecord", GOOD), (root / "labels.txt").unlink()),
            "needs a text file `labels.txt`",
        ),
        (lambda root: write_raw(root / "a.tfrecord", []), "must have records. .*are empty"),
        (
            lambda root: write_raw(root / "a.tfrecord", [as_example(picture=[b""], label=[0])]),
            r"must have the features .*\['label', 'picture'\]",
        ),
        (
            lambda root: (write_raw(root / "b", []), (root / "a.tfrecord").write_text("text" * 99)),
            "`tfrecord:PATTERN` must name",
        ),
    ],
)
def test_wrong_files(tmp_path, prepare, message):
    prepare(tmp_path)
    with pytest.raises(ValueError, match=message):
        load(f"tfrecord:{tmp_path}/*.tfrecord", "train", 8, 4)


def test_class_names_in_another_encoding_are_refused(tmp_path):
    pattern = write_raw(tmp_path / "a.tfrecord", GOOD)
    (tmp_path / "labels.txt").write_bytes("café\nthé\n".encode("latin-1"))
    with pytest.raises(ValueError, match="must be in UTF-8. Received: .*labels.txt"):
        find_source(pattern, "train")


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


@pytest.mark.parametrize("stop", [9, 12])
def test_sound_records_are_not_taken_for_broken_images(stop, damaged):
    with pytest.raises(ValueError, match=r"a file is damaged. Received: a\.tfrecord#6, "):
        find_images([damaged]).columns(0, stop)


def test_sound_records_have_hashes_or_the_file_is_refused(damaged):
    source = find_source(damaged, "train+validation+test")
    with pytest.raises(ValueError, match=r"a file is damaged. Received: a\.tfrecord#6, "):
        hash_part(source, source.numbers)
