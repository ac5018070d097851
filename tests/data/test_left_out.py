"""Broken files never stop a run, and are named."""

import functools
import logging

import pytest
import tensorflow as tf

from keras_vit.data import load
from keras_vit.data.images import augment
from keras_vit.data.left_out import explaining_errors
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"training": True, "min_crop_area": 0.05, "flip": True},
        {"cache": "memory", "batch_size": 1000},
    ],
    ids=str,
)
def test_broken_files_are_left_out_and_named(photos, options, caplog):
    caplog.set_level(logging.INFO, "keras_vit")
    dataset = load(f"folder:{photos}", EVERYTHING, 8, **{"batch_size": 16, **options})
    for _ in range(2):
        assert count(dataset) == 3 * 40 + len(ODD)
        skipped = list(dataset.info.skipped.reasons)
        assert skipped == sorted(f"flower/broken_{name}" for name in BROKEN)
    assert dataset.info.num_examples == 3 * 40 + len(ODD) + len(BROKEN)
    assert str(dataset.info.skipped).startswith("10 of 148 images were skipped: flower/broken_")
    for name in BROKEN:
        assert caplog.text.count(f"skipped flower/broken_{name}:") == 1


def test_a_file_that_vanishes_is_skipped(tmp_path):
    write_photos(tmp_path, 4, size=(12, 10))
    dataset = load(f"folder:{tmp_path}", EVERYTHING, 8, 5)
    (tmp_path / "flower" / "002.jpg").unlink()
    assert count(dataset) == 11
    assert list(dataset.info.skipped.reasons) == ["flower/002.jpg"]


@pytest.mark.slow
def test_too_many_are_an_error(tmp_path):
    write_photos(tmp_path, 10, size=(12, 10))
    for path in sorted(tmp_path.rglob("*.jpg"))[:14]:
        path.write_bytes(b"")
    name = f"folder:{tmp_path}"
    assert count(load(name, EVERYTHING, 8, 5, max_skipped=0.5)) == 16
    for repeat in (False, True):
        dataset = load(name, EVERYTHING, 8, 5, training=True, repeat=repeat)
        message = "At most a share of 0.1 .*`max_skipped`"
        with pytest.raises(ValueError, match=message), explaining_errors(dataset):
            count(dataset.take(20))


@pytest.mark.slow
def test_images_without_features_are_counted(photos):
    images = load(f"folder:{photos}", EVERYTHING, 8, batch_size=16).info
    described = images.dataset.with_features(lambda batch: batch.reshape(len(batch), -1))
    features = described.batches().info
    assert len(features.skipped) == len(BROKEN)
    assert features.num_examples == images.num_examples - len(BROKEN)


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
