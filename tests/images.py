"""Small image files, as users bring them."""

import io

import numpy as np
from PIL import Image


def encode(array, file_format="PNG"):
    """The bytes of an image file."""
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, file_format)
    return buffer.getvalue()


def random_image(height=12, width=16, seed=0):
    """A uint8 picture of noise."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3)).astype("uint8")


def write_folder(root, classes=("cat", "dog"), count=4, suffix=".jpg", size=16):
    """A folder of `count` pictures a class, each class in a colour of its own."""
    for label, name in enumerate(classes):
        directory = root / name
        directory.mkdir(parents=True)
        for index in range(count):
            picture = random_image(size, size, seed=index) // 8
            picture[..., label % 3] += 200
            file_format = "JPEG" if suffix == ".jpg" else suffix[1:].upper()
            (directory / f"{index}{suffix}").write_bytes(encode(picture, file_format))
    return root
