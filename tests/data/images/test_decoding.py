"""Decoding, against Pillow and NumPy."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images.decoding import (
    check_size,
    declared_size,
    decode,
    decode_jpeg_crop,
    is_turned,
    read_orientation,
    turn_upright,
)
from keras_vit.data.images.geometry import inception_crop
from tests.fixtures.photos import broken_images, cut_out, odd_images, photographs, to_bytes

ODD, BROKEN = odd_images(), broken_images()


@tf.function(input_signature=[tf.TensorSpec((), tf.string)])
def in_graph(encoded):
    return decode(encoded, in_graph=True)


OF_PILLOW = (".gif", ".bmp")
# TensorFlow decodes JPEGs with the faster of libjpeg's two transforms, Pillow with the other.
JPEG_LEVELS = 8


def by_pillow(name, encoded):
    if name == "sixteen_bits.png":
        # Made of the bytes of this one, each in both halves of its 16 bits.
        return np.asarray(cut_out(photographs()["china"], (60, 44), seed=1))
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))


@pytest.mark.parametrize("name", sorted(ODD))
def test_every_kind_is_what_pillow_decodes(name):
    expected = by_pillow(name, ODD[name]).astype(int)
    image = decode(ODD[name])
    assert image.dtype == tf.uint8
    is_jpeg = ODD[name].startswith(b"\xff\xd8")
    levels = np.abs(image.numpy().astype(int) - expected)
    assert levels.max() <= (JPEG_LEVELS if is_jpeg else 0)
    assert levels.mean() < 1
    np.testing.assert_array_equal(decode(ODD[name], ImageSpec(antialias=True)), expected)
    if not name.endswith(OF_PILLOW):
        np.testing.assert_array_equal(in_graph(ODD[name]), image)
        assert declared_size(ODD[name]).numpy().tolist() == [44, 60]


@pytest.mark.parametrize("file_format", ["GIF", "BMP"])
def test_a_truncated_file_is_refused(file_format):
    encoded = to_bytes(cut_out(photographs()["china"], (60, 44), seed=1), file_format)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(encoded[:-200])


WEBP_KINDS = {"VP8 ": {}, "VP8L": {"lossless": True}, "VP8X": {"exif": Image.Exif()}}


@pytest.mark.parametrize(("kind", "options"), WEBP_KINDS.items(), ids=WEBP_KINDS)
def test_webp_tells_sizes_beyond_a_byte(kind, options):
    encoded = to_bytes(Image.new("RGB", (1031, 517)), "WEBP", **options)
    assert encoded[12:16] == kind.encode()
    assert declared_size(encoded).numpy().tolist() == [517, 1031]


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_file_is_refused(name):
    # The header reveals a decompression bomb.
    message = "89478485 pixels" if name.startswith("huge") else None
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode(BROKEN[name])
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_graph(BROKEN[name])


@pytest.mark.parametrize(
    "signature",
    [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n", b"GIF89a", b"RIFF\xff\xff\xff\xffWEBPVP8X", b"BM"],
)
def test_a_file_that_ends_in_its_header_is_refused(signature):
    """TensorFlow's message about missing bytes would hold the others, which are no UTF-8."""
    encoded = signature + b"\xff" * 40
    for length in range(len(encoded)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode(encoded[:length])
        with pytest.raises(tf.errors.InvalidArgumentError):
            inception_crop(tf.constant(encoded[:length]), tf.constant([0, 0]))


def test_two_negative_sides_are_no_size():
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to"):
        check_size(tf.constant([-4, -4]))


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_part_of_a_truncated_jpeg_is_refused_wherever_it_is(part):
    encoded = to_bytes(Image.fromarray(photographs()["china"]), "JPEG")
    truncated = tf.constant(encoded[: int(part * len(encoded))])
    for number in range(10):
        with pytest.raises(tf.errors.InvalidArgumentError):
            inception_crop(truncated, tf.constant([0, number]))
    assert inception_crop(tf.constant(encoded + b"and more"), tf.constant([0, 0])).shape[-1] == 3


@pytest.mark.parametrize(
    "options", [{}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}]
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_part_of_a_jpeg_is_that_of_the_whole(mode, options):
    photograph = Image.fromarray(photographs()["china"]).convert(mode)
    encoded = to_bytes(photograph, "JPEG", quality=85, **options)
    whole = decode(encoded).numpy()
    boxes = (0, 0, 427, 640), (3, 5, 1, 1), (101, 333, 97, 201), (1, 7, 426, 9)
    for top, left, height, width in boxes:
        part = decode_jpeg_crop(encoded, tf.constant([top, left]), tf.constant([height, width]))
        np.testing.assert_array_equal(part, whole[top : top + height, left : left + width])


def oriented_photographs():
    """Photographs with every EXIF orientation in every format that has one."""
    image = cut_out(photographs()["flower"], (20, 12), seed=0)
    for file_format in ("JPEG", "PNG", "WEBP"):
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            options = {"lossless": True} if file_format == "WEBP" else {}
            yield to_bytes(image, file_format, exif=exif, **options)


def turn(encoded):
    return turn_upright(decode(encoded), read_orientation(encoded))


def test_photographs_are_turned_as_pillow_turns_them():
    encoded = list(oriented_photographs())
    # In a WebP the EXIF data come last, and end with zeros.
    assert sum(one.endswith(b"\0\0") for one in encoded) == 8
    in_datasets = tf.data.Dataset.from_tensor_slices(encoded).map(turn)
    for one, mapped in zip(encoded, in_datasets, strict=True):
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(one)))).astype(int)
        levels = JPEG_LEVELS if one.startswith(b"\xff\xd8") else 0
        for turned in (turn(one), mapped):
            np.testing.assert_allclose(turned, expected, rtol=0, atol=levels)


def test_photographs_that_are_not_upright_are_found():
    expected = [False] + 7 * [True]
    assert list(map(is_turned, oriented_photographs())) == 3 * expected


@pytest.mark.parametrize("encoded", [*BROKEN.values(), *ODD.values()], ids=[*BROKEN, *ODD])
def test_orientation_of_anything_else_is_upright(encoded):
    assert read_orientation(encoded) == 1
    assert not is_turned(encoded)
