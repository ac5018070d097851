"""Duplicates of test images among those for training: found, however they were changed a little."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw, ImageEnhance

from keras_vit.cli.deduplicate import Deduplicate
from keras_vit.data.deduplication import copies as module
from keras_vit.data.deduplication.copies import (
    MAX_DISTANCE,
    Duplicate,
    Duplicates,
    find_duplicates,
    write_ids,
)
from keras_vit.data.deduplication.hashes import hash_images, view_colors
from keras_vit.data.left_out import read_ids
from keras_vit.data.pipeline import find_source, load
from keras_vit.data.sources.source import from_arrays
from tests.fixtures.masks import write_masks
from tests.fixtures.photos import photographs, to_bytes, write_photos

pytestmark = pytest.mark.slow


def as_source(encoded):
    labels = np.zeros(len(encoded), int)
    return from_arrays(np.array(encoded, object), labels, ["one"], find_id="image#{}".format)


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


def smooth_noise(rng):
    side = int(rng.integers(5, 20))
    return Image.fromarray(rng.integers(0, 256, (side, side, 3), "uint8")).resize((96, 96), 3)


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
    kinds = (random_shapes, smooth_noise, soft_gradient)
    made = [kind(rng) for _ in range(314) for kind in kinds]
    sides = [*pieces(100)]
    contrasts = [np.asarray(image.convert("L")).std() for image in sides]
    # The evenest are skies and shadows, which have nothing to tell them apart.
    kept = sorted(np.argsort(contrasts)[-60:])
    every = [*(sides[i] for i in kept), *made]
    encoded = [to_bytes(image, "PNG", compress_level=1) for image in every]
    return encoded, hash_images(as_source(encoded[:501]), all_views=True)


def select(hashes, chosen, all_views=True):
    words, colors = hashes.words[chosen], hashes.colors[chosen]
    if not all_views:
        words, colors = words[:, :1], np.array([view_colors(each, 0) for each in colors])
    return dataclasses.replace(hashes, numbers=hashes.numbers[chosen], words=words, colors=colors)


def rescale(image, rng):
    return image.resize(np.round(np.array(image.size) * rng.uniform(0.5, 2)).astype(int).tolist())


def crop(image, rng):
    shares = rng.uniform([0, 0, 0.95, 0.95], [0.05, 0.05, 1, 1])
    return image.crop(np.round(shares * np.tile(image.size, 2)).tolist())


def mirror(image, rng):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


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
    for bit in range(9):
        # The numbers of any two images differ in one of the bits.
        is_test = (np.arange(501) >> bit & 1).astype(bool)
        searched, test = select(hashes, ~is_test, all_views=False), select(hashes, is_test)
        assert not list(module.Matcher([test], MAX_DISTANCE).match(searched))


def test_equal_hashes_with_other_colors(distinct):
    both = select(distinct[1], np.arange(2))
    both.words[1] = both.words[0]
    first, second = (select(both, np.array([place])) for place in range(2))
    searched = select(second, np.array([0]), all_views=False)
    assert not list(module.Matcher([first], MAX_DISTANCE).match(searched))
    for place, hashed in enumerate(([both], [first, second])):
        expected = Duplicate(0, "image#1", place, "image#1")
        assert list(module.Matcher(hashed, MAX_DISTANCE).match(searched)) == [expected]


def test_blank_images_are_not_duplicates(distinct):
    grey = [to_bytes(Image.new("RGB", (50, 40), (level,) * 3), "JPEG") for level in (0, 90, 255)]
    source = as_source([*grey, distinct[0][0]])
    found = find_duplicates(source, source)
    assert found.pairs == (Duplicate(0, "image#3", 0, "image#3"),)
    assert found.blank == 2 * ("image#0", "image#1", "image#2")
    assert not find_duplicates(as_source(grey), source).pairs


def test_a_fine_pattern_is_its_own_duplicate():
    squares = (np.indices((128, 128)) // 2).sum(axis=0) % 2
    patterns = [squares, np.indices((128, 128))[0] // 2 % 2]
    encoded = [to_bytes(Image.fromarray(np.uint8(255 * each)), "PNG") for each in patterns]
    found = find_duplicates(as_source(encoded), as_source(encoded[:1]))
    assert found.pairs == (Duplicate(0, "image#0", 0, "image#0"),)


def test_broken_files_are_skipped(distinct):
    whole = to_bytes(next(pieces(100)), "JPEG")
    broken = [b"", whole[: len(whole) // 2], distinct[0][0][:500]]
    found = find_duplicates(as_source([*broken, distinct[0][0]]), as_source(distinct[0][:1]))
    assert [pair.train_id for pair in found.pairs] == [f"image#{len(broken)}"]
    assert len(found.skipped) == len(broken)
    with pytest.raises(ValueError, match="none of which can be decoded"):
        find_duplicates(as_source(broken), as_source(distinct[0][:1]))


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


@pytest.mark.parametrize("max_distance", [-1, 36, 2.5, True])
def test_distance_out_of_range(distinct, max_distance):
    source = as_source(distinct[0][:1])
    with pytest.raises(ValueError, match=f"Received: max_distance={max_distance}"):
        find_duplicates(source, source, max_distance)


@pytest.mark.parametrize("id", ["two\nlines", " spaces.png ", ""])
def test_id_that_is_no_line(tmp_path, id):
    with pytest.raises(ValueError, match="must be one line"):
        write_ids(Duplicates((Duplicate(0, id, 0, "image#0"),), (), ()), tmp_path / "exclude.txt")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def photos(tmp_path, distinct):
    """A folder for training, and one whose test split has two of its photographs, changed."""
    root = write_photos(tmp_path / "train", 3, size=(120, 90))
    for label in ("a", "b"):
        for split in ("train", "test"):
            (tmp_path / "other" / split / label).mkdir(parents=True)
            (tmp_path / "other" / split / label / "1.png").write_bytes(distinct[0][ord(label)])
    for name in ("china", "flower"):
        with Image.open(root / name / "001.png") as photograph:
            image = mirror(photograph, None)
        path = tmp_path / "other" / "test" / "a" / f"{name}.jpg"
        path.write_bytes(to_bytes(image, "JPEG"))
    return root, tmp_path / "other"


def test_command_writes_what_load_leaves_out(photos, tmp_path, capsys):
    train, other = (f"folder:{root}" for root in photos)
    output, picture = tmp_path / "exclude.txt", tmp_path / "pairs.png"
    every = "train+validation+test"
    Deduplicate(train, (other,), output, picture=picture).run()
    comment = "# 2 images that are in a test set"
    assert read_ids(output) == [comment, "china/001.png", "flower/001.png"]
    printed = capsys.readouterr().out
    assert f"{train}: 9 images (all images)\n{other}: 4 images (split test)\n" in printed
    assert "2 of 9 images are in a test set" in printed
    assert f"china/001.png is test/a/china.jpg of {other}" in printed.replace("\\", "/")
    assert "0 images were skipped" in printed
    with Image.open(picture) as sheet:
        assert sheet.size == (320, 2 * 210)
    left = load(train, every, image_size=8, batch_size=4, exclude=output)
    assert left.info.num_examples == 7
    assert sorted(np.concatenate([labels for _, labels in left])) == [0, 0, 1, 1, 2, 2, 2]


def test_command_refuses_to_overwrite(photos, tmp_path):
    train, other = (f"folder:{root}" for root in photos)
    there = tmp_path / "there.txt"
    there.write_text("mine")
    with pytest.raises(ValueError, match=r"must be a new .txt file"):
        Deduplicate(train, (other,), there).run()
    with pytest.raises(ValueError, match=r"must be a new .png file in a folder that exists"):
        Deduplicate(train, (other,), tmp_path / "new.txt", picture=tmp_path / "no" / "a.png").run()
    assert there.read_text() == "mine"
    with pytest.raises(ValueError, match="`name` must be"):
        Deduplicate(train, ("mistyped",), tmp_path / "new.txt").run()


def test_images_with_masks_are_compared(tmp_path):
    root = write_masks(tmp_path)
    shutil.copy(root / "test/images/3.png", root / "train/images/0.png")
    train, test = (find_source(f"masks:{root}", split) for split in ("train", "test"))
    (pair,) = find_duplicates(train, [test]).pairs
    assert (pair.train_id, pair.test_id) == ("train/images/0.png", "test/images/3.png")
