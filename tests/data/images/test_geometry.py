"""The preprocessing functions, against NumPy, one operation at a time."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images import geometry as images
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.geometry import ImageMaker
from keras_vit.data.images.preprocessing import Preprocessing
from tests.fixtures.images import encode, in_a_dataset, random_image
from tests.fixtures.photos import cut_out, odd_images, photographs, to_bytes

SEED = tf.constant([3, 4], tf.int64)
# TensorFlow places the pixels in float32.
GREY_LEVELS = 0.01


def maker(image_size, scale=1, **settings):
    """Return a function from a file and a seed to an image."""
    return ImageMaker(image_size, Preprocessing(**settings), scale).make()


def resize_by_numpy(image, height, width):
    """Bilinear with half-pixel centres, written out."""

    def weights(old, new):
        place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, old - 1)
        matrix = np.zeros((new, old))
        np.add.at(matrix, (np.arange(new), low), 1 - (place - low))
        np.add.at(matrix, (np.arange(new), high), place - low)
        return matrix

    rows, columns = weights(image.shape[0], height), weights(image.shape[1], width)
    return np.einsum("ab,bdc,ed->aec", rows, image.astype("float64"), columns, optimize=True)


@pytest.mark.parametrize("size", [(31, 7), (12, 16), (1, 1), (50, 60)])
def test_resize(size):
    image = random_image()
    expected = resize_by_numpy(image, *size)
    np.testing.assert_allclose(images.resize_image(image, size), expected, atol=GREY_LEVELS)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((375, 500), (256, 341)), ((500, 333), (384, 256)), ((100, 100), (256, 256))],
)
def test_resize_small_keeps_the_aspect_ratio(size, expected):
    assert images.resize_small(random_image(*size), 256).shape == (*expected, 3)


def test_resize_small_refuses_what_would_be_huge():
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 89478485 pixels"):
        images.resize_small(np.zeros((1, 20_000, 3), "uint8"), 256)


def test_central_crop_leaves_an_odd_rest_at_the_end():
    image = random_image(9, 12)
    np.testing.assert_array_equal(images.central_crop(image, (4, 5)), image[2:6, 3:8])


def test_random_crops_are_parts_and_differ():
    rows, columns = np.mgrid[:30, :40]
    image = np.dstack([rows, columns, rows]).astype("uint8")
    places = set()
    for number in range(30):
        crop = images.random_crop(image, (8, 9), tf.constant([0, number])).numpy()
        top, left = crop[0, 0, :2]
        np.testing.assert_array_equal(crop, image[top : top + 8, left : left + 9])
        places.add((top, left))
    assert len(places) > 25


def test_flips_are_half_of_the_images():
    image = random_image()
    flipped = 0
    for number in range(200):
        result = images.random_flip(image, tf.constant([0, number])).numpy()
        is_flipped = np.array_equal(result, image[:, ::-1])
        assert is_flipped or np.array_equal(result, image)
        flipped += is_flipped
    assert 75 < flipped < 125


@pytest.mark.slow
def test_inception_crops_have_the_originals_areas_and_ratios():
    rows, columns = np.mgrid[:256, :200]
    image = np.dstack([rows, columns, rows]).astype("uint8")
    encoded = tf.constant(encode(image))
    areas, ratios = [], []
    for number in range(200):
        crop = images.inception_crop(encoded, tf.constant([0, number])).numpy()
        (top, left), (height, width) = crop[0, 0, :2], crop.shape[:2]
        np.testing.assert_array_equal(crop, image[top : top + height, left : left + width])
        areas.append(height * width / rows.size)
        ratios.append(width / height)
    assert 0.04 < min(areas) < 0.1
    assert max(areas) > 0.75
    assert 0.73 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.36


@pytest.mark.parametrize("name", sorted(odd_images()))
def test_evaluation_is_decode_resize_scale(name):
    encoded = odd_images()[name]
    image = maker((24, 32))(tf.constant(encoded), SEED)
    expected = resize_by_numpy(decode(encoded).numpy(), 24, 32)
    assert image.dtype == tf.float32
    assert image.shape == (24, 32, 3)
    assert -1 <= image.numpy().min() < image.numpy().max() <= 1
    np.testing.assert_allclose(image * 127.5 + 127.5, expected, atol=GREY_LEVELS)


def test_evaluation_without_a_resize_is_exact():
    image = random_image(24, 32)
    ours = maker((24, 32))(encode(image), SEED)
    np.testing.assert_allclose(ours, (image.astype("float64") - 127.5) / 127.5, atol=1e-6)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("box", [(0, 0, 427, 640), (37, 91, 222, 301), (200, 3, 64, 80)])
def test_training_with_a_given_box_is_crop_resize_flip_scale(monkeypatch, file_format, box):
    top, left, height, width = box
    sampled = (tf.constant([top, left]), tf.constant([height, width]))
    monkeypatch.setattr(images, "_sample_crop", lambda size, seed, min_area: sampled)
    encoded = to_bytes(Image.fromarray(photographs()["china"]), file_format)
    part = decode(encoded).numpy()[top : top + height, left : left + width]
    expected = resize_by_numpy(part, 64, 80)[:, ::-1]
    ours = maker((64, 80), min_crop_area=0.05, flip="always")(tf.constant(encoded), SEED)
    np.testing.assert_allclose(ours * 127.5 + 127.5, expected, atol=GREY_LEVELS)
    if (height, width) == (64, 80):
        exact = (part[:, ::-1].astype("float64") - 127.5) / 127.5
        np.testing.assert_allclose(ours, exact, atol=1e-6)


def test_central_crop_is_big_visions():
    image = random_image(48, 64)
    ours = maker(20, central_crop_from=24)(encode(image), SEED)
    small = image.reshape(24, 2, 32, 2, 3).astype(float).mean(axis=(1, 3)).astype("uint8")
    np.testing.assert_allclose(ours * 127.5 + 127.5, small[2:22, 6:26], atol=GREY_LEVELS)


def test_hyper_rule_crops_from_a_square():
    image = random_image(32, 40)
    ours = maker(24, random_crop_from=28, flip="always")(encode(image), SEED)
    square = resize_by_numpy(image, 28, 28)
    parts = [square[y : y + 24, x : x + 24][:, ::-1] for y in range(5) for x in range(5)]
    assert min(np.abs(part - (ours * 127.5 + 127.5)).max() for part in parts) < GREY_LEVELS


def test_hyper_rule_sizes():
    assert images.hyper_rule_sizes(95, 97) == (160, 128)
    assert images.hyper_rule_sizes(96, 96) == (512, 480)


def test_scale_of_zeros_and_ones():
    image = (random_image() > 127).astype("uint8")
    ours = maker((12, 16), scale=255)(encode(image), SEED)
    np.testing.assert_array_equal(ours, image * 2.0 - 1)
    ranged = maker((12, 16), scale=255, image_spec=ImageSpec(value_range=(0, 1)))
    np.testing.assert_array_equal(ranged(encode(image), SEED), ours)
    cut = maker((12, 16), scale=255, central_crop_from=16)
    assert cut(encode(image), SEED).numpy().max() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_crop_area": 0.3, "flip": True, "upright": True},
        {"central_crop_from": 20},
        {"random_crop_from": 20, "flip": "always"},
    ],
)
def test_the_same_eagerly_and_in_a_dataset(options):
    make_image = maker(16, **options)
    for encoded in (odd_images()["cmyk.jpg"], odd_images()["alpha.webp"]):
        encoded = tf.constant(encoded)
        mapped = in_a_dataset(make_image, encoded, SEED)
        np.testing.assert_allclose(mapped, make_image(encoded, SEED), atol=1e-6)


def test_upright_crops_are_those_of_the_turned_picture():
    exif = Image.Exif()
    exif[0x0112] = 6
    image = cut_out(photographs()["flower"], (40, 24), seed=0)
    turned = np.asarray(image.rotate(-90, expand=True))
    ours = maker((40, 24), upright=True)(tf.constant(to_bytes(image, "PNG", exif=exif)), SEED)
    np.testing.assert_allclose(ours * 127.5 + 127.5, turned, atol=GREY_LEVELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": (0, 8)}, "`image_size` must be"),
        ({"min_crop_area": 0}, "`min_crop_area` must be"),
        ({"flip": "sometimes"}, "`flip` must be"),
        ({"central_crop_from": 7}, "`central_crop_from` must be"),
        ({"random_crop_from": 9, "min_crop_area": 0.1}, "At most one of .*random_crop_from"),
    ],
)
def test_wrong_argument(options, message):
    with pytest.raises(ValueError, match=message):
        maker(**{"image_size": 8, **options})
