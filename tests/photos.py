"""Folders of real photographs, sound and broken, as users have them."""

import functools
import io

import numpy as np
from PIL import Image

# Of a picture with just more pixels than are decoded.
HUGE = 9_460


@functools.cache
def photographs():
    """Three real photographs that come with scikit-learn and matplotlib."""
    import matplotlib.cbook
    from sklearn.datasets import load_sample_images

    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        portrait = np.asarray(Image.open(file).convert("RGB"))
    china, flower = load_sample_images().images
    return {"china": china, "flower": flower, "portrait": portrait}


def cut_out(photograph, size, seed):
    """A part of a photograph, of a random place and scale."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(photograph)
    side = int(rng.uniform(0.4, 0.9) * min(image.size))
    left, top = (int(rng.integers(0, whole - side)) for whole in image.size)
    return image.crop((left, top, left + side, top + side)).resize(size)


def to_bytes(image, file_format, **options):
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def write_photos(root, count, size=(60, 44), classes=("china", "flower", "portrait")):
    """A folder of so many photographs a class, JPEG and PNG in turns."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for index in range(count):
            image = cut_out(photographs()[name], size, seed=1000 * label + index)
            suffix, file_format = ((".jpg", "JPEG"), (".png", "PNG"))[index % 2]
            (root / name / f"{index:03d}{suffix}").write_bytes(to_bytes(image, file_format))
    return root


def write_digits(folder, digit):
    """A folder of the PNG files of one of scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    folder.mkdir(parents=True)
    digits = load_digits()
    for index, image in enumerate(digits.images[digits.target == digit]):
        pixels = np.round(image * (255 / 16)).astype("uint8")
        (folder / f"{index:03d}.png").write_bytes(to_bytes(Image.fromarray(pixels), "PNG"))


def sixteen_bits(array):
    """A PNG of 16 bits a channel, which Pillow does not write."""
    import tensorflow as tf

    return tf.io.encode_png(array.astype("uint16") * 257).numpy()


def odd_images(size=(60, 44)):
    """Files of every kind that must be decoded: their names and bytes."""
    image = cut_out(photographs()["china"], size, seed=1)
    alpha = image.copy()
    alpha.putalpha(100)
    turned = image.rotate(180)
    return {
        "cmyk.jpg": to_bytes(image.convert("CMYK"), "JPEG"),
        "grey.jpg": to_bytes(image.convert("L"), "JPEG"),
        "progressive.jpg": to_bytes(image, "JPEG", progressive=True),
        "alpha.png": to_bytes(alpha, "PNG"),
        "sixteen_bits.png": sixteen_bits(np.asarray(image)),
        "palette.png": to_bytes(image.quantize(64), "PNG"),
        "grey_alpha.png": to_bytes(alpha.convert("LA"), "PNG"),
        "lossy.webp": to_bytes(image, "WEBP"),
        "lossless.webp": to_bytes(image, "WEBP", lossless=True),
        "alpha.webp": to_bytes(alpha, "WEBP"),
        "lossless_alpha.webp": to_bytes(alpha, "WEBP", lossless=True),
        "animated.gif": to_bytes(image, "GIF", save_all=True, append_images=[turned]),
        "colours.bmp": to_bytes(image, "BMP"),
        "grey.bmp": to_bytes(image.convert("L"), "BMP"),
        "palette.bmp": to_bytes(image.quantize(64), "BMP"),
        "alpha.bmp": to_bytes(alpha, "BMP"),
        "really_a_png.jpg": to_bytes(image, "PNG"),
        "really_a_jpeg.png": to_bytes(image, "JPEG"),
    }


@functools.cache
def broken_images():
    """Files that cannot be decoded: their names and bytes."""
    image = cut_out(photographs()["china"], (60, 44), seed=1)
    huge = Image.new("P", (HUGE, HUGE))
    return {
        "empty.jpg": b"",
        "text.jpg": b"not an image",
        "short.jpg": b"\xff\xd8",
        "truncated.jpg": to_bytes(image, "JPEG")[:-200],
        "truncated.png": to_bytes(image, "PNG")[:-200],
        "truncated.webp": to_bytes(image, "WEBP")[:-200],
        "riff.webp": b"RIFF1234WEBP",
        "animated.webp": to_bytes(image, "WEBP", save_all=True, append_images=[image.rotate(90)]),
        "huge.png": to_bytes(huge, "PNG"),
        "huge.gif": to_bytes(huge, "GIF"),
    }
