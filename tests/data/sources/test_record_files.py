"""Patterns of TFRecord files: splits, shards, other files."""

import pytest

from keras_vit.data import find_source, load
from keras_vit.data.sources.splits import SPLITS
from tests.data.sources.test_tfrecord import GOOD, write_raw


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
    with pytest.raises(ValueError, match="without .*a-train-00001-of-00003.tfrecord"):
        load(name, "train", 4, 4)


@pytest.mark.parametrize(("name", "shown"), [("val", "val"), ("valid", "val"), ("dev", "dev")])
def test_splits_have_the_names_that_folders_have(name, shown, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    write_raw(tmp_path / "device-train.tfrecord", GOOD)
    write_raw(tmp_path / f"device-{name}.tfrecord", GOOD[:4])
    pattern = f"tfrecord:{tmp_path}/*{{split}}*"
    assert [find_source(pattern, split).num_examples for split in SPLITS] == [10, 2, 4]
    assert f"validation is 10% of *train*, test is *{shown}*" in caplog.text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train-0", "val-0", "validation-0"), "one name of each split.*of `validation`: .*/val-0"),
        (("train-0", "val-0", "dev-0"), "one name of each split.*of `validation`: .*/dev-0"),
        (("train-0", "train-test"), "to one split.*train-test.tfrecord' of train and test"),
    ],
)
def test_splits_that_cannot_be_told_apart_are_refused(names, message, tmp_path):
    for name in names:
        write_raw(tmp_path / f"{name}.tfrecord", GOOD)
    with pytest.raises(ValueError, match=message):
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
