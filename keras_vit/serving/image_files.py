"""Read image files for models and exports: find, decode, turn upright and preprocess them."""

import logging
import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_vit.core.arguments import as_pair
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec
from keras_vit.data.images.decoding import (
    IN_GRAPH,
    decode,
    explain,
    read_orientation,
    require,
    turn_upright,
)
from keras_vit.data.images.geometry import evaluation_image
from keras_vit.data.sources.folder import describe_left_out, list_images


def preprocess_files(
    encoded: Iterable[str | os.PathLike | bytes],
    image_size: int | tuple[int, int],
    image_spec: ImageSpec = WHOLE_IMAGE,
) -> np.ndarray:
    """Decode and preprocess image files as in evaluation.

    The EXIF orientation is ignored, as in training by default.

    Args:
        encoded: iterable of paths of files, or of their bytes.
        image_size: int or `(height, width)`, in pixels, such as `model.input_shape[1:3]`.
        image_spec: an `ImageSpec`, such as `model.image_spec`; by default the whole image is
            resized as in the ViT paper.

    Returns:
        A float32 array `(images, height, width, channels)` in [-1, 1].

    Raises:
        ValueError: if there is no image, an image cannot be read or decoded, or the size is wrong.

    Example:
    >>> keras.utils.save_img(tmp_path / "black.png", np.zeros((40, 50, 3)))
    >>> keras_vit.serving.preprocess_files([tmp_path / "black.png"], 32).shape
    (1, 32, 32, 3)
    """
    image_size = as_pair(image_size, "image_size")
    pixels = (read_stored(file, image_spec)[1] for file in encoded)
    return np.stack([evaluation_image(image, image_size, image_spec) for image in pixels])


def read_stored(file, image_spec=WHOLE_IMAGE):
    """Return the unchanged bytes of an image file, and its pixels, as `decode` returns them.

    Args:
        file: path of the file, or its bytes.
        image_spec: as in `preprocess_files`.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
    is_path = not isinstance(file, (bytes, bytearray, memoryview))
    name = repr(str(file)) if is_path else "bytes"
    try:
        encoded = pathlib.Path(file).expanduser().read_bytes() if is_path else bytes(file)
        return encoded, decode(encoded, image_spec)
    except (OSError, tf.errors.InvalidArgumentError) as error:
        reason = error.strerror if isinstance(error, OSError) else explain(error, encoded)
        raise ValueError(
            "`images` must be complete files in a format that is decoded, with the channels of the "
            f"model ({image_spec.channels}). "
            f"Received: {name} ({reason})"
        ) from error


def read_image(path, image_spec=WHOLE_IMAGE):
    """Return the bytes of an image file, after checking that it can be decoded.

    Exports and datasets ignore the EXIF orientation, so a photograph that is not stored upright is
    returned as a PNG of the upright pixels.

    Args:
        path: path of the file.
        image_spec: as in `preprocess_files`. It matters only for rotated photographs.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
    return upright(*read_stored(path, image_spec))


def upright(encoded, image):
    """Return the bytes of an image file; other files become an upright PNG.

    Other files are rotated photographs, and formats that exported graphs do not decode.

    Args:
        encoded: bytes of the file.
        image: decoded pixels of the file.

    Raises:
        tf.errors.InvalidArgumentError: if a PNG of 8 bits cannot store the pixels.
    """
    orientation = read_orientation(encoded)
    if orientation == 1 and encoded.startswith(IN_GRAPH):
        return encoded
    fits = image.dtype == tf.uint8 and image.shape[-1] <= 4
    require(fits, "The export takes such images as upright JPEG, PNG or WebP files only")
    return tf.io.encode_png(turn_upright(image, orientation)).numpy()


def list_image_files(paths):
    """Replace each folder in a list of paths by the image files in it and its subfolders.

    Images are recognized as in datasets. The number of files that are not images is logged.
    """
    files, log = [], logging.getLogger("keras_vit")
    for path in map(pathlib.Path, paths):
        if path.expanduser().is_dir():
            listed, left_out = list_images(path.expanduser())
            files += map(pathlib.Path, listed)
            if left_out:
                log.warning("in %s %s", path, describe_left_out(left_out))
        else:
            files.append(path)
    if not files:
        raise ValueError(f"There must be an image. Received: {', '.join(map(str, paths)) or None}")
    return files


def without_broken(files, image_spec=WHOLE_IMAGE):
    """Return the files that can be decoded; log a warning with the number of broken files."""
    readable, errors = [], []
    for file in files:
        try:
            read_stored(file, image_spec)
            readable.append(file)
        except ValueError as error:
            errors.append(error)
    if not readable:
        raise errors[0]
    if errors:
        logging.getLogger("keras_vit").warning(
            "images that cannot be decoded are left out: %d; the first: %s", len(errors), errors[0]
        )
    return readable
