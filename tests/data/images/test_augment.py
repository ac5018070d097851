"""Augmentation: settings, seeds, and what the operations do."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import AUGMENTATIONS, Augmentation, load
from keras_vit.data.images import augment
from tests.fixtures.commands import run_python
from tests.fixtures.images import assert_same, in_a_dataset, random_image
from tests.fixtures.photos import cut_out, photographs

# "How to train your ViT?", figure 4, and `configs/vit_i21k.py` of big_vision: layers, magnitude,
# MixUp's parameter.
PUBLISHED = {
    "none": (0, 0, 0.0),
    "light1": (2, 0, 0.0),
    "light2": (2, 10, 0.2),
    "medium1": (2, 15, 0.2),
    "medium2": (2, 15, 0.5),
    "strong1": (2, 20, 0.5),
    "strong2": (2, 20, 0.8),
    # `bit_hyperrule.py` of big_transfer.
    "bit": (0, 0, 0.1),
    # `configs/proj/distill/bit_i1k.py` of big_vision.
    "mixup": (0, 0, 1.0),
}
IMAGE = np.asarray(cut_out(photographs()["flower"], (48, 40), seed=0), "float32")


def seed(number):
    return tf.constant([7, number], tf.int64)


@pytest.fixture(scope="module")
def medium():
    return augment.rand_augment(2, 15)


def test_settings_are_the_published_ones():
    rows = {name: (row.layers, row.magnitude, row.mixup) for name, row in AUGMENTATIONS.items()}
    assert {name: rows[name] for name in PUBLISHED} == PUBLISHED


@pytest.mark.slow
def test_rand_augment_is_seeded_and_keeps_the_range(medium):
    results = [medium(IMAGE, seed(number)).numpy() for number in range(40)]
    for result in results:
        assert result.shape == IMAGE.shape
        assert result.dtype == "float32"
        assert 0 <= result.min() <= result.max() <= 255
    seeds = tf.data.Dataset.from_tensor_slices([seed(number) for number in range(40)])
    mapped = seeds.map(lambda one: medium(IMAGE, one), num_parallel_calls=4)
    np.testing.assert_array_equal(list(mapped.as_numpy_iterator()), results)
    changed = [not np.array_equal(result, np.trunc(IMAGE)) for result in results]
    # Few pairs of operations leave all pixels as they are.
    assert sum(changed) > 30
    assert len({result.tobytes() for result in results}) > 30


@pytest.mark.slow
def test_rand_augment_in_another_process(medium):
    """Where operations must be deterministic and graphs are optimized, which tests switch off."""
    code = """
import hashlib
import numpy as np
import tensorflow as tf
from keras_vit.data.images.augment import rand_augment
image = np.random.default_rng(0).uniform(0, 255, (40, 48, 3)).astype("float32")
function = rand_augment(2, 15)
for number in range(40):
    print(hashlib.sha256(function(image, tf.constant([7, number])).numpy()).hexdigest())
"""
    digests = run_python(code, TF_DETERMINISTIC_OPS="1").split()
    image = np.random.default_rng(0).uniform(0, 255, (40, 48, 3)).astype("float32")
    results = [medium(image, seed(number)).numpy() for number in range(40)]
    assert digests == [hashlib.sha256(result).hexdigest() for result in results]


def test_random_erasing():
    erase = augment.random_erasing(0.5)
    changed = 0
    for number in range(40):
        result = erase(IMAGE, seed(number)).numpy()
        np.testing.assert_array_equal(erase(IMAGE, seed(number)), result)
        differs = (result != IMAGE).any(axis=-1)
        changed += differs.any()
        if differs.any():
            rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
            box = differs[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert box.mean() > 0.95
    assert 8 < changed < 32


IMAGES = np.stack([IMAGE, IMAGE[::-1], 255 - IMAGE, IMAGE[:, ::-1]])
LABELS = np.eye(4, dtype="float32")
FLAT = np.arange(4, dtype="float32")[:, None, None, None] * np.ones((1, 40, 48, 3), "float32")


def test_mixup_mixes_labels_as_images():
    mix = augment.mixing(Augmentation(mixup=0.8))
    flat = IMAGES.reshape(4, -1)
    for number in range(3):
        images, labels = mix(IMAGES, LABELS, seed(number))
        np.testing.assert_allclose(labels.numpy().sum(axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(images.numpy().reshape(4, -1), labels.numpy() @ flat, atol=1e-2)
        mapped = in_a_dataset(mix, IMAGES, LABELS, seed(number))
        np.testing.assert_array_equal(mapped[0], images)
        np.testing.assert_array_equal(mapped[1], labels)


def test_cutmix_mixes_labels_by_area():
    mix = augment.mixing(Augmentation(cutmix=1.0))
    for number in range(5):
        images, labels = mix(FLAT, LABELS, seed(number))
        values = images.numpy()[..., 0]
        areas = np.stack([(values == value).mean(axis=(1, 2)) for value in range(4)], axis=1)
        # Keras gives the exact area of a box whose corners lie between pixels.
        np.testing.assert_allclose(labels, areas, atol=0.06)


def test_mixup_or_cutmix_for_each_batch():
    mix = augment.mixing(Augmentation(mixup=0.8, cutmix=1.0))
    is_cut = [np.isin(mix(FLAT, LABELS, seed(n))[0], np.arange(4)).all() for n in range(30)]
    assert 5 < sum(is_cut) < 25


@pytest.mark.slow
def test_augmented_batches_are_reproducible_and_can_be_resumed():
    options = {"name": "digits", "split": "validation", "image_size": 16, "batch_size": 32}
    everything = Augmentation(layers=2, magnitude=15, mixup=0.2, cutmix=1.0, erasing=0.3)
    options |= {"training": True, "repeat": True, "augmentation": everything}
    first = list(load(**options).take(3).as_numpy_iterator())
    resumed = load(**options).info.dataset.from_step(1).batches()
    assert_same(first[1:], list(resumed.take(2).as_numpy_iterator()))
    images, labels = first[0]
    assert images.shape == (32, 16, 16, 3)
    assert -1 <= images.min() <= images.max() <= 1
    assert labels.shape == (32, 10)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    assert ((labels > 0).sum(axis=1) == 2).any()


@pytest.mark.parametrize(
    ("name", "value"), [("layers", 1.5), ("magnitude", 31), ("mixup", -1), ("erasing", 2)]
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        Augmentation(**{name: value})


def layer_of(package, name, **options):
    return getattr(pytest.importorskip(package).layers, name)(**options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "name", "options"),
    [
        ("keras", "RandomRotation", {"factor": 0.2}),
        ("keras", "RandomFlip", {"seed": 3}),
        ("keras_cv", "GridMask", {}),
    ],
)
def test_a_layer_draws_from_the_seeds_of_images(package, name, options):
    augmented = []
    for _ in range(2):
        change = augment.by_layer(layer_of(package, name, **options), (16, 12, 3))
        image = random_image(16, 12).astype("float32")
        seeds = tf.data.Dataset.range(6).map(lambda number: tf.stack([number, number]))
        changed = seeds.map(lambda seed, image=image, change=change: change(image, seed), 4)
        augmented.append(np.stack(list(changed.as_numpy_iterator())))
    np.testing.assert_array_equal(*augmented)
    assert len({image.tobytes() for image in augmented[0]}) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "name", "options"), [("keras", "AugMix", {}), ("keras_cv", "GridMask", {"seed": 1})]
)
def test_a_layer_that_cannot_be_repeated_is_refused(package, name, options):
    with pytest.raises(ValueError, match="can be repeated"):
        augment.by_layer(layer_of(package, name, **options), (16, 12, 3))
