"""The batches of `load`: seeds, epochs, resuming, workers, caches, what is known of them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import load
from tests.data.digits import DIGITS, batches
from tests.fixtures.images import assert_same, identify
from tests.fixtures.photos import broken_images, write_photos

AUGMENTED = {"training": True, "min_crop_area": 0.3, "flip": True}


@pytest.mark.slow
def test_one_seed_gives_the_same_batches_whatever_the_global_seed():
    tf.random.set_seed(1)
    first = batches(3, **AUGMENTED, seed=5)
    tf.random.set_seed(2)
    assert_same(first, batches(3, **AUGMENTED, seed=5))
    other = batches(1, **AUGMENTED, seed=6)
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.slow
def test_epochs_have_all_images_in_different_orders():
    dataset = load(**DIGITS, training=True)
    first, second = (list(dataset.as_numpy_iterator()) for _ in range(2))
    assert not np.array_equal(first[0][1], second[0][1])
    np.testing.assert_array_equal(identify(first), identify(second))
    np.testing.assert_array_equal(identify(first), identify(batches()))


@pytest.mark.slow
def test_a_repeated_dataset_has_the_epochs_of_one_that_is_not():
    dataset = load(**DIGITS, **AUGMENTED)
    epochs = [batch for _ in range(3) for batch in dataset.as_numpy_iterator()]
    images = np.concatenate([images for images, _ in epochs])
    repeated = batches(30, **AUGMENTED, repeat=True)
    np.testing.assert_array_equal(np.concatenate([images for images, _ in repeated]), images[:3000])
    assert {len(labels) for _, labels in repeated} == {100}


@pytest.mark.slow
def test_a_stopped_run_goes_on_though_images_are_broken(tmp_path):
    write_photos(tmp_path, 20, size=(12, 10))
    for name, encoded in broken_images().items():
        (tmp_path / "flower" / name).write_bytes(encoded)
    options = {"name": f"folder:{tmp_path}", "batch_size": 7, **AUGMENTED, "repeat": True}
    dataset = load(**{**DIGITS, **options})
    whole = list(dataset.take(23).as_numpy_iterator())
    stopped = load(**{**DIGITS, **options})
    list(stopped.take(15).as_numpy_iterator())
    resumed = dataset.info.dataset.from_step(15, list(stopped.info.skipped.reasons)).batches()
    assert len(stopped.info.skipped) > 3
    assert_same(list(resumed.take(8).as_numpy_iterator()), whole[15:])


@pytest.mark.slow
def test_workers_together_see_every_image_once():
    parts = [batches(batch_size=64, training=True, shard=(index, 3)) for index in range(3)]
    sizes = [sum(len(labels) for _, labels in part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    together = identify([batch for part in parts for batch in part])
    np.testing.assert_array_equal(together, identify(batches()))


@pytest.mark.slow
def test_workers_augment_differently(tmp_path):
    """All pictures are the same one, so that they differ by what is done to them alone."""
    write_photos(tmp_path, 4, size=(40, 30))
    paths = sorted(tmp_path.rglob("*.*"))
    for path in paths:
        path.write_bytes(paths[0].read_bytes())
    options = {**AUGMENTED, "name": f"folder:{tmp_path}", "batch_size": 3, "repeat": True}
    first, second = (batches(1, **options, shard=(index, 2))[0][0] for index in range(2))
    assert all(not np.array_equal(one, other) for one in first for other in second)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "file"])
def test_cache_changes_nothing(place, tmp_path):
    write_photos(tmp_path / "photos", 6, size=(12, 10))
    options = {"name": f"folder:{tmp_path / 'photos'}", "batch_size": 4, **AUGMENTED}
    plain = load(**{**DIGITS, **options})
    expected = [list(plain.as_numpy_iterator()) for _ in range(2)]
    cache = place if place == "memory" else tmp_path / "cache"
    cached = load(**{**DIGITS, **options}, cache=cache)
    assert_same(list(cached.as_numpy_iterator()), expected[0])
    for path in (tmp_path / "photos").rglob("*.*"):
        path.write_bytes(b"")
    assert_same(list(cached.as_numpy_iterator()), expected[1])
    assert len(cached.info.skipped) == 0


def test_evaluation_keeps_the_order_and_the_last_images():
    first, second = batches(split="test"), batches(split="test")
    assert_same(first, second)
    assert [len(labels) for _, labels in first] == [100, 100, 100, 59]


def test_what_is_known_of_a_dataset_stays_with_its_info(tmp_path):
    write_photos(tmp_path, 4, size=(12, 10))
    (tmp_path / "portrait" / "003.png").write_bytes(b"")
    dataset = load(f"folder:{tmp_path}", "train+validation+test", 8, 5)
    assert dataset.class_names == dataset.info.class_names == ("china", "flower", "portrait")
    changed = dataset.map(lambda images, labels: (-images, labels)).unbatch().take(20).prefetch(2)
    assert len(list(changed)) == 11
    assert list(dataset.info.skipped.reasons) == ["portrait/003.png"]
    repeated = dataclasses.replace(dataset.info.dataset, batch_size=7, repeat=True).batches()
    assert [len(labels) for _, labels in repeated.take(3)] == [7, 7, 7]


def test_only_a_repeated_dataset_goes_on_from_a_step():
    with pytest.raises(ValueError, match="`start_step` is for a repeated dataset"):
        dataclasses.replace(load(**DIGITS).info.dataset, start_step=1)


@pytest.mark.slow
def test_one_hot_labels():
    (_, labels), (_, shares) = batches(1)[0], batches(1, one_hot=True)[0]
    np.testing.assert_array_equal(shares, np.eye(10)[labels])
    assert shares.dtype == "float32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "imagenet"}, "`name` must be"),
        ({"split": "dev"}, "`split` must be one of"),
        ({"split": "train+train"}, "`split` must be one of"),
        ({"shard": (2, 2)}, "`shard` must be"),
        ({"shard": (1999, 2000)}, "Each worker must have an image that can be decoded"),
        ({"classes": ("1",)}, "at least two"),
        ({"classes": ("1", "x")}, "`classes` must be a list of names among 0, 1"),
        ({"classes": ("1",), "name": "cifar10"}, "`classes` is for"),
        ({"max_skipped": 2}, "`max_skipped` must be a share"),
        ({"fraction": 1e-5}, "Each worker must have an image that can be decoded"),
        ({"exclude": [f"digits#{n}" for n in range(1797)]}, "Each worker must have an image"),
    ],
)
def test_other_images_than_meant_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load(**{**DIGITS, **options})
