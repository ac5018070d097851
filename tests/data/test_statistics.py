"""The measured range, mean and deviation of pixels, against NumPy."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.cli import main
from keras_vit.core.image_spec import ImageSpec
from keras_vit.data import find_source, load, measure_range
from keras_vit.data.statistics import measure_statistics
from tests.fixtures.images import random_image
from tests.fixtures.masks import write_masks

EVERY = "train+validation+test"
SIZES = [(9, 8), (5, 7), (6, 6)]


def integers(size, seed):
    values = np.random.default_rng(seed).normal(1000, 300, (*size, 13))
    return values.clip(0, 65535).astype("uint16")


def floats(size, seed):
    return np.random.default_rng(seed).normal(size=(*size, 13)).astype("float32")


def rgb(size, seed):
    return np.asarray(random_image(*size, seed=seed))


def write(root, make, count=6):
    """Write images of three sizes as `.npy`, or RGB as `.png`, and return the arrays."""
    images = []
    for index in range(2 * count):
        folder = root / ("cat", "dog")[index % 2]
        folder.mkdir(exist_ok=True)
        image = make(SIZES[index % 3], index)
        images.append(image)
        if image.shape[-1] == 3:
            Image.fromarray(image).save(folder / f"{index}.png")
        else:
            np.save(folder / f"{index}.npy", image)
    return images


def flat(images):
    return np.concatenate([image.reshape(-1, image.shape[-1]) for image in images])


@pytest.mark.parametrize("make", [integers, floats, rgb])
def test_percentiles_are_those_of_numpy(tmp_path, make):
    images = write(tmp_path, make)
    (tmp_path / "cat" / "broken.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "cat" / "other.npy", 9 * integers((3, 3), 0)[..., :2])
    measured = measure_range(find_source(f"folder:{tmp_path}", EVERY), images[0].shape[-1])
    expected = np.percentile(flat(images).astype("float64"), [1, 99])
    np.testing.assert_allclose(measured, expected, rtol=1e-12)


@pytest.mark.parametrize("make", [integers, floats, rgb])
def test_deviations_are_those_of_numpy(tmp_path, make):
    values = flat(write(tmp_path, make)).astype("float64")
    source = find_source(f"folder:{tmp_path}", EVERY)
    low, high = measure_range(source, values.shape[1], "deviations")
    np.testing.assert_allclose(low, values.mean(0) - 2 * values.std(0), rtol=1e-12)
    np.testing.assert_allclose(high, values.mean(0) + 2 * values.std(0), rtol=1e-12)


@pytest.mark.parametrize("constant", [0, 7, 10**9, -0.1])
def test_a_constant_channel_becomes_zero(tmp_path, constant):
    def with_a_constant_channel(size, seed):
        image = floats(size, seed)
        image[..., 12] = constant
        return image

    write(tmp_path, with_a_constant_channel)
    name = f"folder:{tmp_path}"
    value_range = measure_range(find_source(name, "train"), 13, "deviations")
    spec = ImageSpec(channels=13, value_range=value_range)
    ((images, _),) = load(name, "train", 8, 99, image_spec=spec).as_numpy_iterator()
    np.testing.assert_allclose(images[..., 12], 0, atol=1e-6)


def test_images_with_masks_are_measured(tmp_path):
    folder = write_masks(tmp_path)
    files = (folder / "train" / "images").iterdir()
    values = np.concatenate([np.asarray(Image.open(file)).reshape(-1) for file in files])
    measured = measure_range(find_source(f"masks:{folder}", "train"))
    np.testing.assert_allclose(measured, np.percentile(values, [1, 99]), rtol=1e-12)


def test_the_values_of_rgb_count_alike_for_gray_images(tmp_path):
    values = flat(write(tmp_path, rgb)).astype("float64")
    (low,), (high,) = measure_range(find_source(f"folder:{tmp_path}", EVERY), 1, "deviations")
    np.testing.assert_allclose((low + high) / 2, values.mean(), rtol=1e-12)
    np.testing.assert_allclose((high - low) / 4, values.std(), rtol=1e-12)


def test_a_sample_of_images_at_equal_distances_is_measured(tmp_path, monkeypatch):
    write(tmp_path, integers)
    monkeypatch.setattr("keras_vit.data.statistics._IMAGES", 3)
    source = find_source(f"folder:{tmp_path}", EVERY)
    ids = [source.find_id(int(source.numbers[position])) for position in (0, 5, 11)]
    images = [np.load(tmp_path / id) for id in ids]
    expected = np.percentile(flat(images).astype("float64"), [1, 99])
    np.testing.assert_allclose(measure_range(source, 13), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "spec", "low", "high"),
    [
        (integers, ImageSpec(channels=13, value_range="dtype"), 0, 65535),
        (integers, ImageSpec(channels=13, value_range=(500, 1500)), 500, 1500),
        (rgb, ImageSpec(), 0, 255),
    ],
    ids=["13", "range", "RGB"],
)
def test_statistics_are_those_of_numpy(tmp_path, make, spec, low, high):
    pixels = ((flat(write(tmp_path, make)).astype("float64") - low) / (high - low)).clip(0, 1)
    mean, deviation = measure_statistics(find_source(f"folder:{tmp_path}", EVERY), spec)
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-6)
    np.testing.assert_allclose(deviation, pixels.std(0), rtol=1e-5)


def test_loading_names_the_function_that_measures_a_range():
    with pytest.raises(ValueError, match="`method` must be"):
        measure_range(find_source("digits", "train"), method="percentile")
    with pytest.raises(ValueError, match=r"keras_vit\.data\.measure_range"):
        load("digits", "train", 8, 4, image_spec=ImageSpec(value_range="percentiles"))


@pytest.mark.slow
def test_the_command_prints_statistics_to_copy(tmp_path, capsys):
    write(tmp_path, integers)
    name = f"folder:{tmp_path}"
    pixels = ["--image-channels", "13", "--value-range", "percentiles"]
    main(["data", name, *pixels, "--statistics", "--no-check", "--image-size", "8"])
    *_, table_end, line, speed = capsys.readouterr().out.splitlines()
    source = find_source(name, "train")
    spec = ImageSpec(channels=13, value_range=measure_range(source, 13))
    mean, deviation = (tuple(v.round(5).tolist()) for v in measure_statistics(source, spec))
    assert line == f"mean={mean}, deviation={deviation}"
    assert table_end.split() == ["12", str(mean[-1]), str(deviation[-1])]
    assert speed.startswith("training pipeline")
