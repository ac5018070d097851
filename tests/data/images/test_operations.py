"""RandAugment's operations equal the original's in each pixel, and are chosen in the same way."""

import json

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.data.images import augment, operations
from tests.fixtures.images import in_a_dataset, random_image
from tests.fixtures.photos import cut_out, photographs
from tests.fixtures.reference import REFERENCE, read_npz

ARGUMENTS = json.loads((REFERENCE / "x5_randaugment.json").read_text())["arguments"]
OUTPUTS = read_npz("x5_randaugment.io.npz")
# In the order of the original's `available_ops`.
NAMES = [
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "Cutout"),
    "SolarizeAdd",
]
WITHOUT_CUTOUT = [name for name in NAMES if name != "Cutout"]
FUNCTIONS = dict(zip(NAMES, augment.OPERATIONS.values(), strict=True))
# Angles are rounded to float32 before the sine, in which machines differ.
MAX_DIFFERENT = {"Rotate": 0.005}


def photograph(width, height):
    return np.asarray(cut_out(photographs()["china"], (width, height), seed=0))


def in_both_modes(function, image):
    """The equal results of a function eagerly and inside `Dataset.map`."""
    results = np.stack(function(tf.constant(image)))
    np.testing.assert_array_equal(np.stack(in_a_dataset(function, image)), results)
    return results


def as_seeds(count):
    return tf.constant([(number, 5) for number in range(count)], tf.int64)


@pytest.mark.parametrize("name", WITHOUT_CUTOUT)
def test_operation_equals_the_original(name):
    places = [index for index, key in enumerate(ARGUMENTS) if key.split("/")[0] == name]
    arguments = [value for key, value in ARGUMENTS.items() if key.split("/")[0] == name]
    results = in_both_modes(
        lambda image: [FUNCTIONS[name](image, *values) for values in arguments], OUTPUTS["image"]
    )
    assert results.dtype == "uint8"
    different = (results != OUTPUTS["outputs"][places]).any(axis=-1).mean(axis=(1, 2))
    assert different.max() <= MAX_DIFFERENT.get(name, 0)


def test_arguments_equal_the_originals():
    for key, expected in ARGUMENTS.items():
        name, level, sign = key.split("/")
        level, sign = int(level.removeprefix("level")), int(sign.removeprefix("sign"))
        result = augment.operation_arguments(level, sign)[name]
        assert list(np.float32(result)) == list(np.float32(expected)), key
    sides = [2 * augment.operation_arguments(level)["Cutout"][0] for level in (0, 1, 5, 10, 15, 20)]
    assert sides == [0, 8, 40, 80, 120, 160]


def test_pixels_are_those_of_an_image_of_224():
    small, large = (augment.operation_arguments(15, 1, side) for side in (32, 448))
    assert small["Cutout"] == (60 * 32 // 224,)
    assert large["Cutout"] == (120,)
    assert float(small["TranslateX"][0]) == pytest.approx(150 / 7)
    assert float(large["TranslateY"][0]) == 300


def test_levels_beyond_those_of_the_reference():
    """The original's threshold is a uint8, and wraps around; its sum is an int64."""
    image = OUTPUTS["image"]
    expected = np.where(image < 768 % 256, image, 255 - image)
    np.testing.assert_array_equal(operations.solarize(image, 768), expected)
    expected = np.where(image < 128, np.minimum(image.astype(int) + 330, 255), image)
    np.testing.assert_array_equal(operations.solarize_add(image, 330), expected)


def test_channels_of_one_value_stay():
    image = photograph(20, 30).copy()
    image[..., 1] = 77
    stretched, spread = operations.auto_contrast(image).numpy(), operations.equalize(image).numpy()
    for result, pillow in ((stretched, ImageOps.autocontrast), (spread, ImageOps.equalize)):
        assert (result[..., 1] == 77).all()
        expected = np.asarray(pillow(Image.fromarray(image)))
        # Pillow's factors have more digits.
        np.testing.assert_allclose(result.astype(int), expected, atol=1)


@pytest.mark.parametrize("pixels", [0.4, 12.3, -7.8, 300.0])
def test_translations_take_the_nearest_pixel(pixels):
    """As the transformation that the original uses, also between pixels and beyond the image."""

    def transformed(columns, rows):
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=image[None],
            transforms=[[1.0, 0, columns, 0, 1, rows, 0, 0]],
            output_shape=image.shape[:2],
            fill_value=128,
            interpolation="NEAREST",
        )[0]

    image = random_image(30, 44)
    np.testing.assert_array_equal(operations.translate_x(image, pixels), transformed(pixels, 0))
    np.testing.assert_array_equal(operations.translate_y(image, pixels), transformed(0, pixels))


@pytest.mark.slow
@pytest.mark.parametrize("pad", [0, 3, 20])
def test_cutout_at_each_center(pad):
    """A pixel is cut out by its distance to the center."""
    image = random_image(9, 12)
    centers = np.stack(np.meshgrid(np.arange(9), np.arange(12)), axis=-1).reshape(-1, 2)
    results = in_both_modes(
        lambda image: tf.map_fn(
            lambda center: operations.cutout(image, pad, center),
            tf.constant(centers, tf.int32),
            fn_output_signature=tf.TensorSpec(image.shape, tf.uint8),
        ),
        image,
    )
    distances = np.indices((9, 12)) - centers[..., None, None]
    is_cut = ((-pad <= distances) & (distances < pad)).all(axis=1)
    np.testing.assert_array_equal(results, np.where(is_cut[..., None], 128, image))


@pytest.fixture(scope="module")
def drawn():
    """What RandAugment draws for many images of 6 x 9 pixels: choices, signs and centers."""

    @tf.function
    def draw_all(seeds):
        return tf.map_fn(
            lambda seed: augment.draw_layers(2, tf.constant([6, 9]), seed),
            seeds,
            fn_output_signature=(tf.int32, tf.float32, tf.int32),
        )

    return [result.numpy() for result in draw_all(as_seeds(4000))]


def is_uniform(values, count):
    return scipy.stats.chisquare(np.bincount(values.ravel(), minlength=count)).pvalue > 0.001


def test_choices_are_uniform_and_independent(drawn):
    choices, signs, centers = drawn
    assert choices.max() == len(augment.OPERATIONS) - 1 == 15
    for layer in range(2):
        assert is_uniform(choices[:, layer], 16)
        assert is_uniform((signs[:, layer] > 0).astype(int), 2)
    assert set(signs.ravel()) == {-1, 1}
    assert is_uniform(16 * choices[:, 0] + choices[:, 1], 256)
    assert is_uniform(2 * choices + (signs > 0), 32)
    assert is_uniform(6 * choices + centers[..., 0], 96)
    assert is_uniform(9 * centers[..., 0] + centers[..., 1], 54)


@pytest.mark.parametrize(
    ("magnitude", "size"),
    [pytest.param(15, (240, 224), marks=pytest.mark.slow), (27, (32, 40))],
)
def test_rand_augment_applies_what_it_draws(magnitude, size):
    # Between whole numbers and a little outside, as resizing leaves pixels.
    image = photograph(*size[::-1]) + np.random.default_rng(0).uniform(-1, 1, (*size, 3))
    image = image.astype("float32")
    function = augment.rand_augment(2, magnitude)
    side = min(size)
    used = set()
    for seed in as_seeds(40):
        expected = tf.constant(np.clip(image, 0, 255).astype("uint8"))
        for choice, sign, center in zip(*augment.draw_layers(2, size, seed), strict=True):
            name = NAMES[int(choice)]
            arguments = augment.operation_arguments(magnitude, sign, side)[name]
            arguments += (center,) if name == "Cutout" else ()
            expected = FUNCTIONS[name](expected, *arguments)
            used.add(name)
        np.testing.assert_array_equal(function(image, seed), np.float32(expected))
    assert used == set(NAMES)
