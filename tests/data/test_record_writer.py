"""What cannot be read again is not written."""

import dataclasses

import numpy as np
import pytest

from keras_vit.data import write_records
from keras_vit.data.sources.base import from_arrays
from tests.fixtures.images import encode, random_image


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
