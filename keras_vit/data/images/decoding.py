"""Decode image files to RGB pixels, with TensorFlow functions.

The functions work the same eagerly and inside `Dataset.map`. Functions that call Pillow cannot be
exported: exported graphs use `decode_in_graph`, which supports neither GIF and BMP nor EXIF. Files
that cannot be decoded raise `tf.errors.InvalidArgumentError`.
"""

import functools
import io
import re

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.image_spec import MAX_PIXELS

JPEG, PNG, GIF, BMP = b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM"
_JPEG_END = b"\xff\xd9"
# Unsupported formats, with patterns of the first bytes of their files.
_OTHER_FORMATS = {
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "JPEG 2000": rb"\0\0\0\x0cjP",
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL ",
    "HEIC": rb".{4}ftyp(he[iv]|mif|msf)",
    "AVIF": rb".{4}ftypavi",
    "HTML or XML": rb"<",
    "a Git LFS pointer": rb"version https://git-lfs",
}
# The first bytes of PNG and WebP files, which contain the image size.
_HEAD = 32
# Number of values of a tensor that a message shows.
_SHOWN = 8
# Number of extra pixels to decode on each side of a crop. JPEG interpolates colors from neighboring
# pixels: without extra pixels, values at the edges of a crop would differ by up to 16 of 255.
_JPEG_MARGIN = 4

EXIF_ORIENTATION = 0x0112
_SIZE_RULE = f"An image must have from 1 to {MAX_PIXELS} pixels, its height and width are"


def leave_accelerators():
    """Hide accelerators from TensorFlow if it is not the backend.

    Otherwise, TensorFlow would reserve almost all memory of accelerators at its first operation. If
    the program has already used TensorFlow, this function has no effect.
    """
    if keras.backend.backend() == "tensorflow":
        return
    for kind in ("GPU", "TPU"):
        try:
            tf.config.set_visible_devices([], kind)
        except RuntimeError:
            # "Visible devices cannot be modified after being initialized".
            return


# Every module that reads images imports this module.
leave_accelerators()


def decode(encoded, accurate=False):
    """Decode a JPEG, PNG, still WebP, GIF (the first frame) or BMP to RGB.

    Grey becomes three equal channels, CMYK is converted, alpha is dropped, and 16-bit values keep
    their upper 8 bits. The format is recognized by the first bytes, not by the name of the file.

    Args:
        encoded: scalar string tensor, the bytes of a file.
        accurate: whether to decode a JPEG to the same pixels as Pillow. By default, a faster cosine
            transform is used, as in vit_jax; its pixel values differ by a few of 255.

    Returns:
        A uint8 tensor `(height, width, 3)`.

    Raises:
        tf.errors.InvalidArgumentError: if the file is truncated, in another format, or claims more
            than `MAX_PIXELS` pixels.
    """
    image = tf.cond(
        starts_with(encoded, GIF) | starts_with(encoded, BMP),
        lambda: tf.py_function(_decode_by_pillow, [encoded], tf.uint8),
        lambda: decode_in_graph(encoded, accurate),
    )
    return tf.ensure_shape(image, (None, None, 3))


def decode_in_graph(encoded, accurate=False, channels=3):
    """Decode a JPEG, PNG or still WebP as `decode` does, with operations that can be exported.

    With one channel, colors become gray as by Pillow's `convert("L")`. With four channels, the file
    must be a PNG with alpha.
    """
    with tf.control_dependencies([check_size(declared_size(encoded))]):
        encoded = tf.identity(encoded)
    if channels == 4:
        return tf.ensure_shape(tf.io.decode_png(encoded), (None, None, 4))
    method = "INTEGER_ACCURATE" if accurate else ""
    image = tf.case(
        [
            (starts_with(encoded, JPEG), lambda: tf.io.decode_jpeg(encoded, 3, dct_method=method)),
            (starts_with(encoded, PNG), lambda: tf.io.decode_png(encoded, 3)),
        ],
        default=lambda: _decode_webp(encoded),
    )
    image = tf.ensure_shape(image, (None, None, 3))
    return image if channels == 3 else _to_gray(image)


# `decode` for datasets. If the function were inlined, TensorFlow would schedule the operations of
# all decoders, even of decoders that are not used.
decode_function = tf.function(decode, autograph=False, experimental_attributes={"_noinline": True})


def declared_size(encoded):
    """Read the height and the width from the header of a file, without decoding its pixels.

    Args:
        encoded: scalar string tensor, the bytes of a file.

    Returns:
        An int32 tensor `(2,)`.

    Raises:
        tf.errors.InvalidArgumentError: if the bytes are not a JPEG, PNG or WebP file.
    """
    head = _head(encoded)
    values = tf.cast(tf.ensure_shape(tf.io.decode_raw(head, tf.uint8), (_HEAD,)), tf.int32)
    is_webp = starts_with(head, b"RIFF") & (tf.strings.substr(head, 8, 4) == b"WEBP")
    kind = tf.where(is_webp, tf.strings.substr(head, 12, 4), b"")

    def sides(width, height):
        """Return the height and the width, whose bytes are at these indices, lowest byte first."""
        columns = tf.gather(values, [[*height], [*width]])
        return tf.reduce_sum(columns * 256 ** np.arange(len(width), dtype="int32"), axis=1)

    # WebP files without extensions (VP8 and VP8L) have sides of 14 bits.
    side = 2**14
    return tf.case(
        [
            (starts_with(head, JPEG), lambda: tf.io.extract_jpeg_shape(encoded)[:2]),
            (starts_with(head, PNG), lambda: sides(range(19, 15, -1), range(23, 19, -1))),
            (kind == b"VP8X", lambda: sides((24, 25, 26), (27, 28, 29)) + 1),
            (kind == b"VP8L", lambda: sides((21, 22, 23), (22, 23, 24)) // (64, 1) % side + 1),
            (kind == b"VP8 ", lambda: sides((26, 27), (28, 29)) % side),
        ],
        default=lambda: _refuse("Unknown image file format"),
    )


def _head(encoded):
    """Return the first bytes of a file, padded with zeros, so that a short file has no size."""
    # Without padding, `substr` would raise errors with messages that Python cannot decode.
    head = tf.strings.join([tf.strings.substr(encoded, 0, _HEAD), bytes(_HEAD)])
    return tf.strings.substr(head, 0, _HEAD)


def starts_with(encoded, signature):
    """Whether the bytes start with a signature, as a boolean tensor."""
    return tf.strings.substr(encoded, 0, len(signature)) == signature


def is_complete_jpeg(encoded):
    """Whether the bytes are a complete JPEG, as a boolean tensor.

    TensorFlow may decode the upper part of a truncated JPEG without an error.
    """
    end = tf.maximum(tf.strings.length(encoded) - 2, 0)
    return starts_with(encoded, JPEG) & (tf.strings.substr(encoded, end, 2) == _JPEG_END)


def require(condition, *message):
    """Return an operation that raises `tf.errors.InvalidArgumentError` unless a condition is met.

    `tf.debugging.Assert` is slower, because it puts the assertion in a branch.
    """
    data = [tf.convert_to_tensor(part) for part in message]
    return tf.raw_ops.Assert(condition=condition, data=data, summarize=_SHOWN)


def _refuse(reason):
    with tf.control_dependencies([require(False, reason)]):
        return tf.zeros(2, "int32")


def decode_jpeg_crop(encoded, begin, size):
    """Decode a crop of a JPEG. Its pixels are the same as if the whole image were decoded.

    Args:
        encoded: scalar string tensor, the bytes of a JPEG.
        begin: int32 tensor `(2,)`, top and left of the crop.
        size: int32 tensor `(2,)`, height and width of the crop.

    Returns:
        A uint8 tensor `(*size, 3)`.
    """
    whole = tf.io.extract_jpeg_shape(encoded)[:2]
    first = tf.maximum(begin - _JPEG_MARGIN, 0)
    last = tf.minimum(begin + size + _JPEG_MARGIN, whole)
    window = tf.concat([first, last - first], 0)
    image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
    return tf.slice(image, tf.concat([begin - first, [0]], 0), tf.concat([size, [3]], 0))


def jpeg_size(encoded):
    """Read the height and width from the header of a JPEG and check them: int32 `(2,)`."""
    return check_size(tf.io.extract_jpeg_shape(encoded)[:2])


def check_size(size):
    """Check that a size, int32 `(2,)`, has from 1 to `MAX_PIXELS` pixels, and return it."""
    pixels = tf.reduce_prod(tf.cast(size, tf.int64))
    # Two negative sides have a positive product.
    is_possible = tf.reduce_all(size > 0) & (pixels <= MAX_PIXELS)
    with tf.control_dependencies([require(is_possible, _SIZE_RULE, size)]):
        return tf.identity(size)


def cut_and_scale(image, border, scale):
    """Cut `border` pixels off each side of a decoded image, and multiply its values by `scale`.

    Raises:
        tf.errors.InvalidArgumentError: if no pixels would be left.
    """
    if border:
        size = tf.shape(image)[:2]
        rule = (
            f"An image must be larger than its border of {border} pixels, its height and width are"
        )
        with tf.control_dependencies([require(tf.reduce_all(size > 2 * border), rule, size)]):
            image = tf.identity(image)[border:-border, border:-border]
    return image if scale == 1 else image * tf.cast(scale, image.dtype)


def read_orientation(encoded):
    """Read the EXIF orientation of a photograph, an int32 tensor from 1 to 8; 1 means upright.

    The function calls Pillow, so it cannot be exported.
    """
    # `tf.numpy_function` would convert the bytes to a NumPy array, which drops zeros at their end.
    orientation = tf.py_function(lambda data: _orientation_of(data.numpy()), [encoded], tf.int32)
    return tf.ensure_shape(orientation, ())


def turn_upright(image, orientation):
    """Turn and flip an image according to its EXIF orientation, an int32 tensor from 1 to 8.

    Reference:
        EXIF 2.32, tag 274.
    """
    # The image is turned inside the branches, so that one rotation is computed, not eight.
    return tf.switch_case(
        orientation - 1, [functools.partial(_turn, image, index) for index in range(8)]
    )


def _turn(image, index):
    if index >= 4:
        image = tf.transpose(image, (1, 0, 2))
    rows, columns = ((1, 1), (1, -1), (-1, -1), (-1, 1))[index % 4]
    return image[::rows, ::columns]


def explain(error, encoded=b""):
    """Return the reason why an image cannot be decoded, without names of TensorFlow's operations.

    Args:
        error: `tf.errors.OpError` that a decoder raised.
        encoded: bytes of the file, to name an unsupported format.

    Returns:
        A string of one line.

    Example:
    >>> from keras_vit.data.images.decoding import decode, explain
    >>> try:
    ...     decode(b"no image")
    ... except tf.errors.InvalidArgumentError as error:
    ...     explain(error)
    'Unknown image file format'
    """
    if format := other_format(encoded):
        return format
    # The message of a Python function contains a traceback.
    if message := error.message.partition("ValueError: ")[2].partition("\n")[0]:
        return message
    stack, node = r"Graph execution error:.*, in \S+\n", r"{{.*?}}|\[\[\w*\]\]|\[Op:\w+\].*"
    names = f"{stack}|{node}|assertion failed: "
    reason = re.sub(names, "", error.message, flags=re.DOTALL)
    return " ".join(reason.replace("[", "").replace("]", "").split())


def looks_decodable(head):
    """Whether a file with these first bytes seems to have a supported format."""
    is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return head.startswith((JPEG, PNG, GIF, BMP)) or is_webp


def other_format(head):
    """Return a text that names an unsupported format, from the first bytes of a file, or `None`."""
    formats = _OTHER_FORMATS.items()
    name = next((name for name, start in formats if re.match(start, head, re.DOTALL)), None)
    return name and f"{name}, which is not decoded"


def is_turned(encoded):
    """Whether the bytes of a file are a photograph that is not upright according to its EXIF data.

    Example:
    >>> from keras_vit.data.images.decoding import is_turned
    >>> is_turned(b"no image")
    False
    """
    # Most images have neither EXIF nor XMP. Searching the bytes is faster than opening the image.
    may_be = any(mark in encoded for mark in (b"Exif", b"eXIf", b"EXIF", b"Orientation"))
    return may_be and _orientation_of(encoded) != 1


def _orientation_of(encoded):
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    except Exception:
        # Pillow raises a dozen kinds of exceptions for broken files and broken EXIF data. The
        # decoder reports broken files.
        orientation = 1
    return int(orientation) if orientation in range(1, 9) else 1


def _decode_by_pillow(encoded):
    try:
        with Image.open(io.BytesIO(encoded.numpy()), formats=("GIF", "BMP")) as image:
            width, height = image.size
            # Check the size before the pixels are decoded.
            if not 0 < width * height <= MAX_PIXELS:
                raise ValueError(f"{_SIZE_RULE} {height} {width}")
            return np.asarray(image.convert("RGB"))
    # Pillow raises a dozen kinds of exceptions for broken files.
    except Exception as error:
        raise ValueError(re.sub(r" <.*>", "", str(error))) from error


def _to_gray(image):
    """Convert RGB to one channel, in Pillow's fixed-point numbers, whose sum is 2**16."""
    weighted = tf.cast(image, tf.int32) * (19595, 38470, 7471)
    return tf.cast((tf.reduce_sum(weighted, -1, keepdims=True) + 2**15) // 2**16, tf.uint8)


def _decode_webp(encoded):
    head = _head(encoded)
    flags = tf.io.decode_raw(tf.strings.substr(head, 20, 1), tf.uint8)[0]
    is_animated = (tf.strings.substr(head, 12, 4) == b"VP8X") & (flags & 2 > 0)
    # TensorFlow 2.21 writes beyond the end of a buffer when it decodes an animation.
    with tf.control_dependencies([require(~is_animated, "An animated WebP is not decoded")]):
        encoded = tf.identity(encoded)
    # Decode all channels, because `decode_image(channels=3)` raises an error for images with alpha.
    return tf.io.decode_image(encoded, expand_animations=False)[..., :3]
