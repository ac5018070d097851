"""Images are resized and cropped as by Pillow, with the offsets of transformers and torchvision."""

import numpy as np
import PIL
import PIL.Image
import pytest
import tensorflow as tf

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data import load
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.geometry import evaluation_image, resize_as
from tests.fixtures.images import write_folder

# Height and width of images: wide, tall, square, and smaller than what they become.
SIZES = [(375, 500), (500, 333), (300, 300), (40, 57)]


def photograph(height, width):
    """Pixels with edges, fine structure and noise."""
    rows, columns = np.mgrid[:height, :width]
    waves = np.stack([np.sin(rows / f) + np.cos(columns / (2 * f)) for f in (2, 9, 40)], axis=-1)
    edges = 60.0 * ((rows // 17 + columns // 23) % 2)[..., None]
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 3))
    return np.clip(90 + 45 * waves + edges + noise, 0, 255).astype("uint8")


# Pillow 13 resizes some tall images vertically first, which clips other overshoots.
MAY_BE_VERTICAL_FIRST = int(PIL.__version__.split(".")[0]) >= 13


def resized_by_pillow(image, size, resample):
    """What `Image.resize` of Pillow 12 makes of an image, by any version: horizontally first."""
    if MAY_BE_VERTICAL_FIRST:
        image = image.resize((size[0], image.height), resample)
    return image.resize(size, resample)


def by_pillow(pixels, size, image_spec):
    """What an image processor of transformers, or torchvision's transforms, make of an image."""
    image = PIL.Image.fromarray(pixels)
    before = [int(length / image_spec.crop_share + 1e-6) for length in size]
    if image_spec.keeps_aspect_ratio:
        (smaller,) = set(before)
        before = [int(smaller * length / min(image.size)) for length in image.size[::-1]]
    resample = getattr(PIL.Image.Resampling, image_spec.interpolation.upper())
    resized = np.asarray(resized_by_pillow(image, before[::-1], resample))
    rest = np.array(resized.shape[:2]) - size
    offsets = [round(n / 2.0) if image_spec.rounds_offset else n // 2 for n in rest.tolist()]
    return resized[tuple(slice(o, o + n) for o, n in zip(offsets, size, strict=True))]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "image_spec",
    [
        ImageSpec("bilinear", antialias=True),
        ImageSpec("lanczos", antialias=True),
        ImageSpec("bicubic", antialias=True, crop_share=96 / 110),
        ImageSpec("bicubic", antialias=True, keeps_aspect_ratio=True),
        ImageSpec("bicubic", antialias=True, crop_share=0.9, keeps_aspect_ratio=True),
        ImageSpec("bilinear", True, 0.875, True, rounds_offset=True),
    ],
    ids=str,
)
def test_as_pillow(size, image_spec):
    pixels = photograph(*size)
    ours = resize_as(tf.constant(pixels), (96, 96), image_spec).numpy()
    expected = by_pillow(pixels, (96, 96), image_spec)
    assert np.abs(ours - expected).max() <= 1
    assert np.array_equal(ours, np.round(ours))


def test_a_portrait_whose_clipped_overshoots_depend_on_the_order():
    """Pillow 13 differs by 20 grey levels."""
    pixels = np.random.default_rng(0).integers(0, 2, (500, 333, 1)).repeat(3, -1) * 255
    pixels, image_spec = pixels.astype("uint8"), ImageSpec("bicubic", antialias=True)
    ours = resize_as(tf.constant(pixels), (224, 224), image_spec).numpy()
    assert np.abs(ours - by_pillow(pixels, (224, 224), image_spec)).max() <= 1


def test_a_batch_is_resized_as_its_images():
    images = np.stack([photograph(60, 80), photograph(60, 80)[::-1]])
    image_spec = ImageSpec("bicubic", True, 0.9, True)
    batch = evaluation_image(images, (32, 32), image_spec)
    each = [evaluation_image(image, (32, 32), image_spec) for image in images]
    np.testing.assert_array_equal(batch, each)


def test_images_that_are_not_square():
    pixels = photograph(300, 400)
    resized = resize_as(pixels, (64, 128), ImageSpec("bilinear", True, 1.0, True))
    whole = np.asarray(PIL.Image.fromarray(pixels).resize((128, 96), PIL.Image.BILINEAR))
    assert np.abs(resized - whole[16:80]).max() <= 1


@pytest.mark.slow
def test_images_of_load_are_resized_in_this_way(tmp_path):
    folder = write_folder(tmp_path / "test", count=1).parent
    write_folder(folder / "train", count=1)
    options = {"image_size": 24, "batch_size": 8, "image_spec": ImageSpec("bicubic", True)}
    ((images, _),) = load(f"folder:{folder}", "test", **options)
    file = min(folder.rglob("test/*/*.jpg")).read_bytes()
    expected = evaluation_image(
        decode(file, ImageSpec(antialias=True)), (24, 24), options["image_spec"]
    )
    np.testing.assert_array_equal(images[0], expected)
    with pytest.raises(ValueError, match="`image_spec` must not be given with a crop"):
        load(f"folder:{folder}", "test", **options, central_crop_from=32)


def test_a_thin_image_is_refused():
    """It would have more pixels than an image may have."""
    pixels = np.zeros((1, 20_000, 3), "uint8")
    with pytest.raises(tf.errors.InvalidArgumentError):
        evaluation_image(pixels, (256, 256), ImageSpec(antialias=True, keeps_aspect_ratio=True))
