"""Duplicates of test images among those for training: found, however they were changed a little."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw, ImageEnhance

from keras_vit.data.deduplication import copies as module
from keras_vit.data.deduplication.copies import (
    MAX_DISTANCE,
    Duplicate,
    Duplicates,
    find_duplicates,
    write_ids,
)
from keras_vit.data.deduplication.hashes import hash_images
from keras_vit.data.pipeline import find_source
from tests.data.deduplication.test_groups import as_source, mirrored
from tests.fixtures.masks import write_masks
from tests.fixtures.photos import photographs, to_bytes

pytestmark = pytest.mark.slow


def pieces(side):
    """Parts of the photographs that do not overlap."""
    for photograph in photographs().values():
        height, width = photograph.shape[:2]
        for top in range(0, height - side + 1, side):
            for left in range(0, width - side + 1, side):
                yield Image.fromarray(photograph[top : top + side, left : left + side])


def random_shapes(rng):
    image = Image.new("RGB", (96, 96), tuple(rng.integers(0, 256, 3).tolist()))
    for _ in range(8):
        corners = [tuple(point) for point in rng.uniform(0, 96, (4, 2)).tolist()]
        ImageDraw.Draw(image).polygon(corners, fill=tuple(rng.integers(0, 256, 3).tolist()))
    return image


def soft_gradient(rng):
    y, x = np.mgrid[0:1:96j, 0:1:96j][..., None]
    pixels = x * rng.normal() + y * rng.normal() + np.zeros(3)
    for _ in range(4):
        left, top = rng.uniform(0, 1, 2)
        spot = ((x - left) ** 2 + (y - top) ** 2) / rng.uniform(0.05, 0.5) ** 2
        pixels = pixels + np.exp(-spot) * rng.uniform(-1, 1, 3)
    pixels = (pixels - pixels.min()) / np.ptp(pixels)
    return Image.fromarray((255 * pixels).astype("uint8"))


@pytest.fixture(scope="module")
def distinct():
    """The bytes of 1,002 different images: 60 parts of photographs, then drawn ones.

    And the hashes of the first 501: to hash every view takes long.
    """
    rng = np.random.default_rng(0)
    kinds = (random_shapes, soft_gradient)
    made = [kind(rng) for _ in range(471) for kind in kinds]
    sides = [*pieces(100)]
    contrasts = [np.asarray(image.convert("L")).std() for image in sides]
    # The evenest are skies and shadows, which have nothing to tell them apart.
    kept = sorted(np.argsort(contrasts)[-60:])
    every = [*(sides[i] for i in kept), *made]
    encoded = [to_bytes(image, "PNG", compress_level=1) for image in every]
    return encoded, hash_images(as_source(encoded[:501]), all_views=True)


def rescale(image, rng):
    return image.resize(np.round(np.array(image.size) * rng.uniform(0.5, 2)).astype(int).tolist())


def crop(image, rng):
    shares = rng.uniform([0, 0, 0.95, 0.95], [0.05, 0.05, 1, 1])
    return image.crop(np.round(shares * np.tile(image.size, 2)).tolist())


def mirror(image, rng):
    return mirrored(image)


def brighten(image, rng):
    return ImageEnhance.Brightness(image).enhance(rng.uniform(0.85, 1.15))


@pytest.mark.parametrize(
    "changes",
    [(rescale,), (crop,), (mirror,), (brighten,), (), (mirror, crop), (rescale, crop, brighten)],
    ids=lambda changes: "-".join(change.__name__ for change in changes) or "compress",
)
def test_changed_photographs_are_found(distinct, changes):
    encoded, hashes = distinct
    rng = np.random.default_rng(1)
    changed = []
    for bytes_ in encoded[:60]:
        image = Image.fromarray(tf.io.decode_image(bytes_).numpy())
        for change in changes:
            image = change(image, rng)
        changed.append(to_bytes(image, "JPEG", quality=int(rng.integers(30, 96))))
    found = list(module.Matcher([hashes], MAX_DISTANCE).match(hash_images(as_source(changed))))
    assert len(found) >= 0.95 * 60
    assert all(pair.train_id == pair.test_id for pair in found)


def test_a_thousand_different_images_are_not_taken_for_each_other(distinct):
    encoded, hashes = distinct
    others = hash_images(as_source(encoded[501:]))
    assert len(hashes.numbers) == len(others.numbers) == 501
    assert not list(module.Matcher([hashes], MAX_DISTANCE).match(others))


def test_blank_images_are_not_duplicates(distinct):
    grey = [to_bytes(Image.new("RGB", (50, 40), (level,) * 3), "JPEG") for level in (0, 90, 255)]
    source = as_source([*grey, distinct[0][0]])
    found = find_duplicates(source, source)
    assert found.pairs == (Duplicate(0, "image#3", 0, "image#3"),)
    assert found.blank == 2 * ("image#0", "image#1", "image#2")
    assert not find_duplicates(as_source(grey), source).pairs


def test_several_test_sets(distinct):
    encoded = distinct[0]
    test_sets = [as_source(encoded[3:7]), as_source(encoded[:2])]
    found = find_duplicates(as_source(encoded[:5]), test_sets)
    assert [(pair.train_id, pair.test_set, pair.test_id) for pair in found.pairs] == [
        ("image#0", 1, "image#0"),
        ("image#1", 1, "image#1"),
        ("image#3", 0, "image#0"),
        ("image#4", 0, "image#1"),
    ]


def test_id_that_is_no_line_is_not_written(tmp_path):
    id = "two\nlines"
    with pytest.raises(ValueError, match="must be one line"):
        write_ids(Duplicates((Duplicate(0, id, 0, "image#0"),), (), ()), tmp_path / "exclude.txt")
    assert not list(tmp_path.iterdir())


def test_images_with_masks_are_compared(tmp_path):
    root = write_masks(tmp_path)
    shutil.copy(root / "test/images/3.png", root / "train/images/0.png")
    train, test = (find_source(f"masks:{root}", split) for split in ("train", "test"))
    (pair,) = find_duplicates(train, [test]).pairs
    assert (pair.train_id, pair.test_id) == ("train/images/0.png", "test/images/3.png")
