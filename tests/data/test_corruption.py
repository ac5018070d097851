"""Masked patch prediction: what is corrupted, and the targets."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import load, mask_patches
from keras_vit.data.corruption import encode_colors
from keras_vit.inspection.figures.drawing import decode_colors

PATCH = (4, 6)
PATCHES = 2 * 4


def images(count=6):
    return np.random.default_rng(0).uniform(-1, 1, (count, 8, 24, 3)).astype("float32")


def dataset(count=6, batch_size=4):
    arrays = (images(count), np.zeros(count, "int32"))
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)


def masked(target="mean_color", **options):
    return list(mask_patches(dataset(), PATCH, target, **options).as_numpy_iterator())


def corruptions(batches):
    return [inputs["corruption"] for inputs, _, _ in batches]


def cut(image, height, width):
    """The patches of an image one by one, without reshaping."""
    rows, columns = range(0, len(image), height), range(0, image.shape[1], width)
    return [image[row : row + height, left : left + width] for row in rows for left in columns]


def color_class(color):
    red, green, blue = (min(int((value + 1) / 2 * 8), 7) for value in color)
    return 64 * red + 8 * green + blue


def mean_class(patch):
    return color_class(patch.mean((0, 1)))


def cell_classes(patch):
    """A cell is a mean in which pixels that lie in two cells count as much as they do."""
    return [mean_class(cell) for cell in cut(np.repeat(patch, 2, axis=1), 1, 3)]


@pytest.mark.parametrize(
    ("target", "describe", "dtype"),
    [
        ("mean_color", mean_class, "int32"),
        ("downsized", cell_classes, "int32"),
        ("pixels", np.ravel, "float32"),
    ],
)
def test_targets(target, describe, dtype):
    expected = [[describe(patch) for patch in cut(image, *PATCH)] for image in images()]
    targets = np.concatenate([targets for _, targets, _ in masked(target)])
    assert targets.dtype == dtype
    np.testing.assert_array_equal(targets, expected)


def test_colors_of_classes_have_these_classes():
    classes = np.arange(512)
    np.testing.assert_array_equal(encode_colors(decode_colors(classes)), classes)


@pytest.mark.parametrize(("share", "count"), [(0.5, 4), (0.15, 1), (0.3, 2), (1.0, 8)])
@pytest.mark.parametrize("target", ["mean_color", "downsized", "pixels"])
def test_weights_are_on_the_share_of_corrupted_patches(target, share, count):
    cells = (16,) if target == "downsized" else ()
    for inputs, _, weights in masked(target, share=share):
        assert weights.shape == (len(inputs["images"]), PATCHES, *cells)
        np.testing.assert_allclose(weights.mean(axis=1), 1, rtol=1e-6)
        assert len(np.unique(weights[weights > 0])) == 1
        # The cells of a patch have one weight.
        weights = weights.reshape(-1, PATCHES, np.prod(cells, dtype=int))
        is_corrupted = (weights > 0).any(axis=-1)
        np.testing.assert_array_equal(is_corrupted, (weights > 0).all(axis=-1))
        np.testing.assert_array_equal(is_corrupted.sum(axis=1), count)
        changed = inputs["corruption"] != np.arange(PATCHES)
        assert not changed[~is_corrupted].any()


def test_corrupted_patches_are_masked_another_or_kept():
    blank = tf.data.Dataset.from_tensors((tf.zeros((500, 40, 40, 3)), tf.zeros(500)))
    ((inputs, _, weights),) = mask_patches(blank, 4).as_numpy_iterator()
    corruption, is_corrupted = inputs["corruption"], weights > 0
    own = np.broadcast_to(np.arange(100), (500, 100))
    assert corruption.min() == -1
    assert corruption.max() == 99
    # Of 25,000 patches: a share of 0.8 varies by 0.0025, one of 0.1 by 0.002.
    drawn, mine = corruption[is_corrupted], own[is_corrupted]
    assert abs((drawn == -1).mean() - 0.8) < 0.01
    assert abs((drawn == mine).mean() - 0.1) < 0.01
    another = (drawn != -1) & (drawn != mine)
    assert abs(another.mean() - 0.1) < 0.01
    # Each patch is corrupted as often as any, and any other takes its place.
    assert abs(is_corrupted.mean(axis=0) - 0.5).max() < 0.1
    distances = (drawn - mine)[another] % 100
    counts = np.bincount(distances, minlength=100)
    assert counts[0] == 0
    assert counts[1:].min() > 0


def test_draws_depend_on_the_seed_and_on_the_batch():
    first = corruptions(masked(seed=3))
    assert not np.array_equal(first[0][:2], first[1])
    assert not np.array_equal(first[0][0], first[0][1])
    data = mask_patches(dataset(), PATCH, seed=3)
    for _ in range(2):
        tf.random.set_seed(_)
        for ours, other in zip(first, corruptions(data.as_numpy_iterator()), strict=True):
            np.testing.assert_array_equal(ours, other)
    assert not np.array_equal(first[0], corruptions(masked(seed=4))[0])


def test_a_resumed_stream_is_the_same():
    endless = dataset().repeat()
    stream = list(mask_patches(endless, PATCH).take(5).as_numpy_iterator())
    resumed = mask_patches(endless.skip(3), PATCH, start_step=3)
    for ours, other in zip(stream[3:], resumed.take(2).as_numpy_iterator(), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, ours, other)
    # Two batches are an epoch: the third has other masks than the first.
    np.testing.assert_array_equal(stream[0][0]["images"], stream[2][0]["images"])
    assert not np.array_equal(stream[0][0]["corruption"], stream[2][0]["corruption"])


@pytest.mark.slow
def test_a_dataset_of_load_goes_on_from_a_step():
    digits = load("digits", "test", image_size=8, batch_size=50, training=True, repeat=True)
    data = mask_patches(digits.info.dataset, 2, "pixels", share=0.3, seed=2)
    (expected,) = data.batches().skip(2).take(1).as_numpy_iterator()
    (batch,) = data.from_step(2).batches().take(1).as_numpy_iterator()
    tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)
    (same,) = mask_patches(digits, 2, "pixels", share=0.3, seed=2).skip(2).take(1)
    tf.nest.map_structure(np.testing.assert_array_equal, batch, same)


def test_the_dataset_keeps_its_info():
    digits = load("digits", "test", image_size=8, batch_size=100).info.dataset
    data = mask_patches(digits, 2).batches()
    assert data.info.num_examples == 359
    assert data.class_names == digits.class_names
    assert int(data.cardinality()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 5}, "`image_size` must be a multiple of"),
        ({"target": "colour"}, "`target` must be one of"),
        ({"patch_size": 2, "target": "downsized"}, "needs patches of at least 4 x 4 pixels"),
        ({"share": 0}, "`share` must select from 1 to 8 patches"),
    ],
)
def test_targets_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mask_patches(dataset(), **{"patch_size": PATCH, **options})
