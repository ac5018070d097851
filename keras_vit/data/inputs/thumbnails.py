"""Small pictures of images that were found."""

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.data.images.decoding import decode, read_orientation, turn_upright


def thumbnails(images, ids, size=160):
    """Return small pictures of some of the images.

    Args:
        images: `ImageRows`.
        ids: set of the ids of those to read.
        size: greatest length of a side, in pixels.

    Returns:
        A dictionary from ids to uint8 arrays `(height, width, 3)`.

    Raises:
        ValueError: if an image is not there any more.
    """
    found = {}
    for number in range(images.num_images):
        if (id := images.find_id(number)) in ids:
            pixels = _pixels(images.read(number, number + 1))
            picture = Image.fromarray(pixels)
            picture.thumbnail((size, size))
            found[id] = np.asarray(picture)
    if missing := sorted(ids - set(found)):
        raise ValueError(f"All images must be there to be drawn. Received: none of {missing[0]!r}")
    return found


def _pixels(columns):
    if "image" in columns:
        return columns["image"][0]
    encoded = columns["bytes"][0] if "bytes" in columns else tf.io.read_file(columns["path"][0])
    return turn_upright(decode(encoded), read_orientation(encoded)).numpy()
