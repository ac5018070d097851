"""Images and exports that a user names by a path."""

import pathlib

from keras_vit.serving.formats import FORMATS, file_names
from keras_vit.serving.versions import is_version, version_folders


def find_export(path):
    """Return the directory of the version of an export that a path means, or `None`.

    Args:
        path: path of a version, of a file that identifies its format, or of a directory of
            versions, whose newest is meant.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_file() and any(path.name == row.file_name for row in FORMATS.values()):
        return path.parent
    if is_version(path):
        return path
    # Like TF Serving: "007" is version 7, and if the newest cannot be served, none is.
    versions = version_folders(path)
    if not any(is_version(folder) for _, folder in versions):
        return None
    newest = [folder for number, folder in versions if number == versions[-1][0]]
    if len(newest) > 1 or not is_version(newest[0]):
        raise ValueError(
            f"The newest version of an export must be one directory with {file_names()}; to use "
            f"another version, give its path. Received: {', '.join(map(str, newest))}"
        )
    return newest[0]


def read_image(path, accurate=False):
    """Return the bytes of an image file, after checking that it can be decoded.

    Exports and datasets take pixels as they are stored and ignore the orientation in the metadata.
    A photograph that must be rotated to be upright is therefore returned as a PNG of the rotated
    pixels.

    Args:
        path: path of the file.
        accurate: as in `decode`, for a photograph that is rotated: `image_spec.antialias` of the
            model that takes it.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
    return upright(*read_stored(path, accurate))


def upright(encoded, image):
    """Return the bytes of an image file, of a PNG if it must be rotated or no export decodes it.

    Args:
        encoded: bytes of the file.
        image: its pixels, decoded as the model that takes them decodes other files.
    """
    import tensorflow as tf

    from keras_vit.data.images.decoding import BMP, GIF, read_orientation, turn_upright

    orientation = read_orientation(encoded)
    if orientation == 1 and not encoded.startswith((GIF, BMP)):
        return encoded
    return tf.io.encode_png(turn_upright(image, orientation)).numpy()


def read_stored(path, accurate=False):
    """Return the bytes of an image file as they are, and its pixels, a uint8 tensor.

    `accurate` is as in `decode`.
    """
    import tensorflow as tf

    from keras_vit.data.images.decoding import decode, explain

    try:
        encoded = pathlib.Path(path).expanduser().read_bytes()
        return encoded, decode(encoded, accurate)
    except OSError as error:
        raise ValueError(
            f"`images` must be files that can be read. Received: {str(path)!r} ({error.strerror})"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`images` must be complete JPEG, PNG, GIF, BMP or still WebP files. "
            f"Received: {str(path)!r}, which is not ({explain(error, encoded)})"
        ) from error
