"""What cannot be read again is not written."""

import dataclasses

import numpy as np
import pytest

from keras_vit.data import find_source, write_records
from keras_vit.data.sources.base import from_arrays
from tests.fixtures.images import encode, random_image, write_folder


def source(labels=(0, 1, 0), names=("cat", "dog"), bad=()):
    """A `Source` of pictures, some of them broken."""
    files = [encode(random_image(seed=number)) for number in range(len(labels))]
    files = [file[:40] if number in bad else file for number, file in enumerate(files)]
    return from_arrays(np.array(files, object), labels, names, find_id="image#{}".format)


@pytest.mark.parametrize(
    "made, message",
    [
        (source(labels=(0, 2, 1)), "A label must be from 0 to 1.* label=2 of image#1"),
        (source(labels=(0, -1, 1)), "A label must be from 0 to 1.* label=-1 of image#1"),
        (source(bad=(0, 1, 2)), "Received: 3, of which 0 can be decoded"),
        (source(names=("cat", "sea\nlion")), "class names of one line"),
        (source(names=("cat", "")), "class names of one line"),
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
