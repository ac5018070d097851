"""Images of any number of channels and bits, against NumPy and Pillow."""

import dataclasses
import io
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data import Augmentation, load
from keras_vit.data.images.decoding import decode, explain, read_orientation
from keras_vit.data.images.geometry import resize_as
from keras_vit.serving import preprocess_files
from keras_vit.serving.runner import Runner
from tests.fixtures.images import assert_same, encode, random_image

EVERY = "train+validation+test"


def numbers(*shape, end=65536, dtype="uint16", seed=0):
    return np.random.default_rng(seed).integers(0, end, shape).astype(dtype)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def tiff(*pages, **options):
    buffer = io.BytesIO()
    first, *others = map(Image.fromarray, pages)
    first.save(buffer, "TIFF", save_all=True, append_images=others, **options)
    return buffer.getvalue()


BANDS, DEEP = numbers(9, 7, 13, end=4096), numbers(9, 7)
BYTES, ALPHA = random_image(9, 7), numbers(9, 7, 4, end=256, dtype="uint8")
FLOATS = np.random.default_rng(0).normal(size=(9, 7, 2)).astype("float32")
LOW, HIGH = np.arange(13) * 20.0, 3000 - np.arange(13) * 10.0
# An image, its file, the `ImageSpec`, and the values in [0, 255] by NumPy.
KINDS = {
    "13 bands": (npy(BANDS), {"channels": 13, "value_range": (0, 4095)}, BANDS / 4095 * 255),
    "13 bands of a range each": (
        npy(BANDS),
        {"channels": 13, "value_range": (LOW.tolist(), HIGH.tolist())},
        (np.clip(BANDS, LOW, HIGH) - LOW) / (HIGH - LOW) * 255,
    ),
    "13 bands in 8 bits": (npy(BANDS), {"channels": 13}, BANDS >> 8),
    "columns first": (npy(np.asfortranarray(BANDS)), {"channels": 13}, BANDS >> 8),
    "big-endian": (npy(BANDS.astype(">u2")), {"channels": 13}, BANDS >> 8),
    "array of floats": (
        npy(FLOATS),
        {"channels": 2, "value_range": (-1, 0.5)},
        (np.clip(FLOATS, -1, 0.5) + 1) * 170,
    ),
    "array of one channel": (npy(DEEP), {"channels": 1}, DEEP[..., None] >> 8),
    "array of true and false": (npy(DEEP > 9), {"channels": 1}, (DEEP[..., None] > 9) * 255),
    "RGB array": (npy(BYTES), {}, BYTES),
    "16-bit PNG": (
        encode(DEEP),
        {"channels": 1, "value_range": "dtype"},
        DEEP[..., None] / 65535 * 255,
    ),
    "16-bit PNG in 8 bits": (encode(DEEP), {"channels": 1}, DEEP[..., None] >> 8),
    "8-bit PNG of a range each": (
        encode(BYTES),
        {"value_range": ((10, 20, 30), (100, 110, 120))},
        (BYTES.astype(float) - (10, 20, 30)).clip(0, 90) / 90 * 255,
    ),
    "8-bit PNG of a range": (
        encode(BYTES),
        {"value_range": (10, 100)},
        (np.clip(BYTES.astype(float), 10, 100) - 10) / 90 * 255,
    ),
    "alpha of PNG": (encode(ALPHA), {"channels": 4}, ALPHA),
    "PNG without alpha": (encode(ALPHA), {"value_range": "dtype"}, ALPHA[..., :3]),
    "alpha of TIFF": (tiff(ALPHA), {"channels": 4}, ALPHA),
    "TIFF": (tiff(BYTES), {}, BYTES),
    "16-bit TIFF": (tiff(DEEP), {"channels": 1, "value_range": (0, 65535)}, DEEP[..., None] / 257),
    "float TIFF": (
        tiff(FLOATS[..., 0]),
        {"channels": 1, "value_range": (-2, 2)},
        (np.clip(FLOATS[..., :1], -2, 2) + 2) * 63.75,
    ),
    "pages of TIFF": (tiff(*np.moveaxis(BANDS, -1, 0)), {"channels": 13}, BANDS >> 8),
    "gray PNG as RGB": (
        encode(BYTES[..., 0]),
        {"value_range": "dtype"},
        np.repeat(BYTES[..., :1], 3, -1),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_pixels_are_those_of_numpy(name):
    encoded, options, expected = KINDS[name]
    pixels = decode(encoded, ImageSpec(**options))
    assert pixels.dtype == (tf.float32 if "value_range" in options else tf.uint8)
    np.testing.assert_allclose(pixels, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in KINDS if "PNG" in name])
def test_exported_graphs_decode_the_same(name):
    encoded, options, _ = KINDS[name]
    spec = ImageSpec(**options)
    in_graph = tf.function(lambda encoded: decode(encoded, spec, in_graph=True))
    np.testing.assert_array_equal(in_graph(tf.constant(encoded)), decode(encoded, spec))


@pytest.mark.parametrize("file_format", ["PNG", "BMP", "TIFF", "GIF"])
def test_gray_is_that_of_pillow(file_format):
    encoded = encode(BYTES, file_format)
    expected = Image.open(io.BytesIO(encoded)).convert("RGB").convert("L")
    gray = decode(encoded, ImageSpec(channels=1))
    np.testing.assert_array_equal(gray[..., 0], expected)


BROKEN = {
    "truncated": (npy(BANDS)[:-1], 13, "smaller than"),
    "of texts": (npy(np.zeros((2, 2, 13), object).astype("S1")), 13, "must be"),
    "of two axes too many": (npy(np.zeros((1, 2, 2, 13))), 13, "must be"),
    "empty": (npy(np.zeros((0, 2, 13))), 13, "must be"),
    "without a header": (b"\x93NUMPY", 13, "magic"),
    "huge": (npy(BANDS).replace(b"(9, 7, 13), }      ", b"(99999, 99999, 13), }"), 13, "smaller"),
    "of other channels": (npy(BANDS), 12, "12 channels, its number of channels is 13"),
    "of two channels": (npy(BANDS[..., :2]), 1, "1 channels, its number of channels is 2"),
    "of four channels": (npy(BANDS[..., :4]), 3, "3 channels, its number of channels is 4"),
    "RGB, not with alpha": (encode(BYTES), 4, "4 channels, its number of channels is 3"),
    "of floats": (npy(FLOATS), 2, "value_range"),
    "not finite": (tiff(np.full((2, 2), np.nan, "float32")), 1, "finite"),
    "of pages of other sizes": (tiff(DEEP, DEEP[1:]), 2, "must have one size"),
    "of pages of other types": (tiff(DEEP, DEEP.astype("uint8")), 2, "the same type of values"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_such_image_is_refused(name):
    encoded, channels, message = BROKEN[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        decode(encoded, ImageSpec(channels=channels))
    assert message in explain(caught.value, encoded)


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 0},
        {"value_range": "percent"},
        {"value_range": (1, 1)},
        {"value_range": (0, np.inf)},
        {"value_range": (0, 1, 2)},
    ],
    ids=str,
)
def test_wrong_pixels_of_a_spec_are_refused(options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`"):
        ImageSpec(**options)


def test_a_turned_tiff_is_turned_once():
    encoded = tiff(BYTES, tiffinfo={0x0112: 3})
    np.testing.assert_array_equal(decode(encoded), BYTES[::-1, ::-1])
    assert read_orientation(encoded) == 1


def test_floats_are_not_rounded_where_they_are_resized():
    image = FLOATS[..., :1] * 20 + 128
    resized = resize_as(image, (4, 3), ImageSpec("bicubic", antialias=True))
    expected = Image.fromarray(image[..., 0]).resize((3, 4), Image.Resampling.BICUBIC)
    np.testing.assert_allclose(resized[..., 0], expected, rtol=0, atol=1e-4)


def write_bands(root, count=6, **options):
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for index in range(count):
            np.save(root / name / f"{index}.npy", numbers(9, 8, 13, seed=index, **options))
    return f"folder:{root}"


def write_twice(root, encoded):
    for name in ("cat", "dog"):
        (root / name).mkdir()
        (root / name / "image").write_bytes(encoded)
    return f"folder:{root}"


BANDS_13 = {"image_spec": ImageSpec(channels=13, value_range="dtype")}


def test_a_folder_of_other_channels_is_read(tmp_path):
    name = write_bands(tmp_path)
    np.save(tmp_path / "dog" / "12.npy", numbers(9, 8, 12))
    batches = load(name, EVERY, (9, 8), 20, **BANDS_13)
    ((images, _),) = batches.as_numpy_iterator()
    expected = np.stack([numbers(9, 8, 13, seed=index) / 32767.5 - 1 for index in range(6)])
    np.testing.assert_allclose(images, np.concatenate([expected, expected]), rtol=0, atol=1e-6)
    reason = "An image must have 13 channels, its number of channels is 12"
    assert batches.info.skipped.reasons == {"dog/12.npy": reason}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"min_crop_area": 0.3, "flip": True, "augmentation": Augmentation(mixup=0.5, erasing=0.9)},
        {"random_crop_from": 12, "augmentation": Augmentation(cutmix=1.0)},
        {"central_crop_from": 12},
        {"augmentation": keras.layers.RandomRotation(0.2)},
    ],
    ids=["crop, flip, erase, mix", "random crop", "central crop", "layer"],
)
def test_a_stopped_run_goes_on_with_any_channels(tmp_path, options):
    settings = {"training": True, "repeat": True, **BANDS_13, **options}
    dataset = load(write_bands(tmp_path), EVERY, 8, 5, **settings)
    whole = list(dataset.take(7).as_numpy_iterator())
    resumed = dataset.info.dataset.from_step(4).batches()
    assert_same(list(resumed.take(3).as_numpy_iterator()), whole[4:])
    assert whole[0][0].shape == (5, 8, 8, 13)
    assert not np.array_equal(whole[0][0], whole[1][0])


def test_operations_on_colors_need_three_channels(tmp_path):
    with pytest.raises(ValueError, match="three channels"):
        load(write_bands(tmp_path), EVERY, 8, 5, augmentation="light1", **BANDS_13)


@pytest.mark.parametrize(
    ("end", "options", "count"),
    [
        (4096, {"channels": 13}, 1),
        (65536, {"channels": 13}, 0),
        (200, {"channels": 13, "value_range": (0, 200)}, 0),
    ],
)
def test_nearly_black_images_are_reported_once(tmp_path, caplog, end, options, count):
    name = write_bands(tmp_path, end=end)
    for split in ("train", "test"):
        load(name, split, 8, 5, image_spec=ImageSpec(**options))
    assert caplog.text.count("nearly black") == count


def test_a_nearly_black_png_is_reported_with_the_option(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "keras_vit")
    load(write_twice(tmp_path, encode(numbers(9, 8, end=4096))), EVERY, 8, 5)
    assert "value_range" in caplog.text


@pytest.mark.parametrize("name", ["16-bit PNG", "float TIFF", "13 bands", "alpha of PNG"])
def test_predictions_read_the_pixels_of_datasets(tmp_path, name):
    encoded, options, _ = KINDS[name]
    spec = dataclasses.replace(ImageSpec("bicubic", antialias=True), **options)
    (expected, _), _ = load(write_twice(tmp_path, encoded), EVERY, 6, 1, image_spec=spec)
    runner = Runner(None, (6, 6, spec.channels), None, (6, 6), spec)
    np.testing.assert_array_equal(runner.prepare(encoded), expected[0])
    np.testing.assert_allclose(preprocess_files([encoded], 6, spec), expected, rtol=0, atol=1e-6)


def test_predictions_take_arrays_of_any_numbers():
    encoded, options, _ = KINDS["13 bands"]
    runner = Runner(None, (6, 6, 13), None, (6, 6), ImageSpec(**options))
    np.testing.assert_array_equal(runner.prepare_pixels(BANDS), runner.prepare(encoded))


@pytest.mark.parametrize(
    ("package", "file_format"), [("pillow_heif", "HEIF"), ("pillow_jxl", "JXL")]
)
def test_plug_ins_of_pillow_decode_their_formats(package, file_format):
    pytest.importorskip(package)
    decode(npy(BYTES))  # Registers the plug-in.
    encoded = encode(BYTES, file_format)
    expected = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
    np.testing.assert_array_equal(decode(encoded), expected)
