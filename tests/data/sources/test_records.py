"""TFRecord files: written, read, sharded, damaged."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import find_source, load, write_records
from keras_vit.data.deduplication.hashes import hash_examples
from keras_vit.data.digest import scan_records
from keras_vit.data.inputs import find_images
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.source import from_arrays
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, identify, random_image, write_folder
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
    assert list(dataset.info.skipped.reasons)[:2] == ["good.tfrecord#1", "good.tfrecord#10"]
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
    assert list(dataset.info.skipped.reasons) == ["a.tfrecord#12", "a.tfrecord#13"]
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


def test_labels_that_start_at_1_are_refused(tmp_path):
    labels = (1, 2)
    records = [as_example(**{"image/encoded": [PNG], "image/class/label": [i]}) for i in labels]
    name = write_raw(tmp_path / "a.tfrecord", records)
    with pytest.raises(ValueError, match="label=2 of a.tfrecord#"):
        read_all(name)
    (tmp_path / "labels.txt").write_text("background\ncat\ndog\n")
    assert sorted(read_all(name)[0]) == list(labels)


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
        (lambda root: write_raw(root / "a.tfrecord", []), "Received: 0 images"),
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


def test_files_without_class_names_are_refused(tmp_path):
    name = write_raw(tmp_path / "a.tfrecord", GOOD)
    (tmp_path / "labels.txt").unlink()
    with pytest.raises(FileNotFoundError, match="labels.txt"):
        find_source(name, "train")


def test_records_with_other_features_have_no_images(tmp_path):
    name = write_raw(tmp_path / "a.tfrecord", [as_example(picture=[PNG], label=[0])] * 3)
    with pytest.raises(ValueError, match="No image could be read"):
        read_all(name)


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
        hash_examples(source, source.numbers)


def test_incomplete_and_mixed_shards_are_refused(tmp_path):
    for i in range(3):
        name = write_raw(tmp_path / f"a-train-0000{i}-of-00003.tfrecord", GOOD[:4])
    assert load(name, "train+validation+test", 4, 4).info.num_examples == 12
    assert load(f"{name}-00001-*", "train+validation+test", 4, 4).info.num_examples == 4
    write_raw(tmp_path / "a-train-00000-of-00001.tfrecord", GOOD[:4])
    with pytest.raises(ValueError, match="of 00001 and of 00003"):
        load(name, "train", 4, 4)
    (tmp_path / "a-train-00000-of-00001.tfrecord").unlink()
    (tmp_path / "a-train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(ValueError, match="Received: 2 files .*a-train-', of 00003"):
        load(name, "train", 4, 4)


@pytest.mark.parametrize("name", ["val", "valid", "dev"])
def test_splits_have_the_names_that_folders_have(name, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    write_raw(tmp_path / "device-train.tfrecord", GOOD)
    write_raw(tmp_path / f"device-{name}.tfrecord", GOOD[:4])
    pattern = f"tfrecord:{tmp_path}/*{{split}}*"
    assert [find_source(pattern, split).num_examples for split in SPLITS] == [10, 2, 4]
    assert "validation is 10% of train, test is validation" in caplog.text


def test_a_file_of_two_splits_is_refused(tmp_path):
    for name in ("train-0", "train-test"):
        write_raw(tmp_path / f"{name}.tfrecord", GOOD)
    with pytest.raises(ValueError, match="to one split.*train-test.tfrecord' of several"):
        find_source(f"tfrecord:{tmp_path}/*{{split}}*", "train")


def test_files_next_to_records_are_left_out_and_counted(tmp_path):
    for name in ("a.tfrecord", "a.tfrecord.bak", "b-00000-of-00001"):
        pattern = write_raw(tmp_path / name, GOOD[:6])
    (tmp_path / "a-notes.txt").write_text("")
    source = find_source(pattern, "train+validation+test")
    assert source.num_examples == 12
    assert source.left_out == {"not a TFRecord file (.bak)": 1, "not a TFRecord file (.txt)": 1}
    # Where all names are the user's own, the files are taken.
    source = find_source(f"tfrecord:{tmp_path}/*.bak", "train+validation+test")
    assert source.num_examples == 6
    assert not source.left_out


def source(labels=(0, 1, 0), names=("cat", "dog"), bad=()):
    """A `Source` of pictures, some of them broken."""
    files = [encode(random_image(seed=number)) for number in range(len(labels))]
    files = [file[:40] if number in bad else file for number, file in enumerate(files)]
    return from_arrays(np.array(files, object), labels, names, find_id="image#{}".format)


@pytest.mark.parametrize(
    "made, message",
    [
        (source(bad=(0, 1, 2)), "Received: 3, of which 0 can be decoded"),
    ],
)
def test_what_cannot_be_read_again_is_refused(made, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_records(made, tmp_path / "records", "train")
    assert not list(tmp_path.rglob("*.*"))


def test_examples_that_are_missing_are_noticed(tmp_path):
    made = source()
    less = dataclasses.replace(made, examples=made.examples.take(2))
    with pytest.raises(ValueError, match="All 3 examples .* Received: 2, of which 2 can"):
        write_records(less, tmp_path, "train")
    assert not list(tmp_path.iterdir())


def test_some_broken_images_are_left_out(tmp_path):
    (path,) = write_records(source(bad=(1,)), tmp_path, "train")
    assert path.stat().st_size > 0


@pytest.mark.parametrize("labels", ["cat\ncat\n", "cat\n\n", "cat\nCat\n", "cat\n"])
def test_records_with_wrong_labels_are_refused(labels, tmp_path):
    photos = write_folder(tmp_path / "photos", count=10)
    write_records(find_source(f"folder:{photos}", "train"), tmp_path / "records", "train", 1)
    (tmp_path / "records" / "labels.txt").write_text(labels)
    with pytest.raises(ValueError, match="The class names of 'tfrecord:"):
        find_source(f"tfrecord:{tmp_path}/records/*", "train")


def test_records_of_several_folders_have_the_same_classes(tmp_path):
    for name, classes in (("one", ("cat", "dog")), ("two", ("ant", "dog"))):
        photos = write_folder(tmp_path / f"photos of {name}", classes, count=10)
        source = find_source(f"folder:{photos}", "train")
        write_records(source, tmp_path / "records" / name, "train", 1)
    with pytest.raises(ValueError, match="must have the same class names.*one.*two"):
        find_source(f"tfrecord:{tmp_path}/records/*/*", "train")
