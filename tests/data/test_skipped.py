"""Broken files never stop a run, and are named."""

import functools
import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import load
from keras_vit.data.images import augment
from keras_vit.data.left_out import explaining_errors
from keras_vit.serving.image_files import read_stored
from tests.fixtures.photos import broken_images, odd_images, write_photos

BROKEN, ODD = broken_images(), odd_images()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photographs of which one class has files of every odd kind and one broken ones."""
    root = write_photos(tmp_path_factory.mktemp("data") / "photos", 40, size=(24, 20))
    for name, encoded in ODD.items():
        (root / "china" / f"odd_{name}").write_bytes(encoded)
    for name, encoded in BROKEN.items():
        (root / "flower" / f"broken_{name}").write_bytes(encoded)
    return root


EVERYTHING = "train+validation+test"


def count(dataset):
    return sum(len(labels) for _, labels in dataset.as_numpy_iterator())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"training": True, "min_crop_area": 0.05, "flip": True},
        pytest.param({"cache": "memory"}, marks=pytest.mark.slow),
        pytest.param({"batch_size": 1000}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_broken_files_are_left_out_and_named(photos, options, caplog):
    caplog.set_level(logging.INFO, "keras_vit")
    dataset = load(f"folder:{photos}", EVERYTHING, 8, **{"batch_size": 16, **options})
    assert len(dataset.info.skipped) == 0
    for _ in range(2):
        assert count(dataset) == 3 * 40 + len(ODD)
        assert list(dataset.info.skipped.reasons) == sorted(
            f"flower/broken_{name}" for name in BROKEN
        )
    assert dataset.info.num_examples == 3 * 40 + len(ODD) + len(BROKEN)
    assert str(dataset.info.skipped).startswith(
        "10 of 148 images were skipped: flower/broken_animated"
    )
    for name in BROKEN:
        assert caplog.text.count(f"skipped flower/broken_{name}:") == 1


@pytest.mark.slow
def test_reasons(photos):
    dataset = load(f"folder:{photos}", EVERYTHING, 8, 16)
    count(dataset)
    reasons = dataset.info.skipped.reasons
    assert reasons["flower/broken_huge.png"] == (
        "An image must have from 1 to 89478485 pixels, its height and width are 9460 9460"
    )
    assert reasons["flower/broken_text.jpg"] == "Unknown image file format"
    assert reasons["flower/broken_truncated.jpg"].startswith("jpeg::Uncompress failed")
    assert reasons["flower/broken_truncated.png"].startswith("Invalid PNG data")


def test_formats_that_are_not_decoded_are_named(tmp_path, caplog):
    caplog.set_level(logging.INFO, "keras_vit")
    write_photos(tmp_path, 4, size=(12, 10))
    convert = ", which is not decoded"
    heads = {
        f"HEIC{convert}": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        f"AVIF{convert}": b"\0\0\0\x20ftypavif\0\0\0\0",
        "a Git LFS pointer, which is not decoded": b"version https://git-lfs.github.com/spec/v1",
    }
    for number, head in enumerate(heads.values()):
        (tmp_path / "flower" / f"00{number}.jpg").write_bytes(head)
    dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, 16)
    count(dataset)
    assert f"skipped flower/000.jpg: HEIC{convert}" in caplog.messages
    assert list(dataset.info.skipped.reasons.values()) == list(heads)
    assert all(f".jpg ({reason})" in str(dataset.info.skipped) for reason in heads)
    with pytest.raises(ValueError, match=rf"000.jpg' \(HEIC{convert}\)"):
        read_stored(tmp_path / "flower" / "000.jpg")


@pytest.mark.slow
def test_a_repeated_dataset_goes_on(photos):
    dataset = load(f"folder:{photos}", EVERYTHING, 8, 16, training=True, repeat=True, flip=True)
    sizes = [len(labels) for _, labels in dataset.take(40).as_numpy_iterator()]
    assert sizes == [16] * 40
    assert len(dataset.info.skipped) == len(BROKEN)


def test_a_file_that_vanishes_is_skipped(tmp_path):
    write_photos(tmp_path, 4, size=(12, 10))
    dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, 5)
    (tmp_path / "flower" / "002.jpg").unlink()
    assert count(dataset) == 11
    assert list(dataset.info.skipped.reasons) == ["flower/002.jpg"]


@pytest.mark.slow
def test_the_last_of_all_is_not_forgotten(tmp_path):
    write_photos(tmp_path, 4, size=(12, 10))
    (tmp_path / "portrait" / "003.png").write_bytes(b"")
    for batch_size in (1, 11, 12):
        dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, batch_size)
        assert count(dataset) == 11
        assert list(dataset.info.skipped.reasons) == ["portrait/003.png"]


@pytest.mark.slow
def test_two_iterators_at_once_find_the_same(photos):
    dataset = load(f"folder:{photos}", EVERYTHING, 8, 16)
    both = list(zip(dataset.as_numpy_iterator(), dataset.as_numpy_iterator(), strict=True))
    for (images, labels), (others, other_labels) in both:
        np.testing.assert_array_equal(images, others)
        np.testing.assert_array_equal(labels, other_labels)
    assert len(dataset.info.skipped) == len(BROKEN)


@pytest.mark.slow
def test_too_many_are_an_error(tmp_path):
    write_photos(tmp_path, 10, size=(12, 10))
    for path in sorted(tmp_path.rglob("*.jpg"))[:14]:
        path.write_bytes(b"")
    name = f"folder:{tmp_path}"
    assert count(load(name, EVERYTHING, 8, 5, max_skipped=0.5)) == 16
    message = r"At most a share of 0.1 .*`max_skipped`.*Received: .* of 30 images were skipped: "
    for repeat in (False, True):
        dataset = load(name, EVERYTHING, 8, 5, training=True, repeat=repeat)
        with pytest.raises(ValueError, match=message), explaining_errors(dataset):
            count(dataset.take(20))


def test_all_of_them_are_an_error(tmp_path):
    write_photos(tmp_path, 2, size=(12, 10))
    for path in tmp_path.rglob("*.*"):
        path.write_bytes(b"")
    dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, 4)
    with (
        pytest.raises(ValueError, match="No image could be read"),
        explaining_errors(dataset),
    ):
        count(dataset)


def test_images_without_features_are_counted(photos):
    images = load(f"folder:{photos}", EVERYTHING, 8, batch_size=16)
    features = images.info.dataset.with_features(
        lambda batch: batch.reshape(len(batch), -1)
    ).batches()
    assert len(features.info.skipped) == len(BROKEN)
    assert f"{len(BROKEN)} of {images.info.num_examples} images were skipped" in str(
        features.info.skipped
    )
    assert features.info.num_examples == images.info.num_examples - len(BROKEN)


def test_an_error_of_an_augmentation_is_raised(tmp_path, monkeypatch):
    def fail(image, seed):
        raise tf.errors.InvalidArgumentError(None, None, "a bug of the augmentation")

    write_photos(tmp_path, 4, size=(12, 10))
    make = functools.partial(tf.numpy_function, fail, Tout=tf.float32)
    monkeypatch.setattr(augment, "rand_augment", lambda *_: lambda *inputs: make(inputs))
    dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, 4, training=True, augmentation="light1")
    with pytest.raises(tf.errors.OpError, match="a bug of the augmentation"):
        count(dataset)
    assert len(dataset.info.skipped) == 0
