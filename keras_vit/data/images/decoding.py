"""Decode image files to pixels, with TensorFlow functions.

The functions work the same eagerly and inside `Dataset.map`. Functions that call Pillow cannot be
exported: exported graphs decode JPEG, PNG and WebP only, without EXIF. Files that cannot be decoded
raise `tf.errors.InvalidArgumentError`.
"""

import contextlib
import functools
import importlib
import io
import math
import re

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.image_spec import MAX_PIXELS, WHOLE_IMAGE

JPEG, PNG, GIF, BMP = b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM"
_NPY = b"\x93NUMPY"
# The first bytes of JPEG, PNG and WebP files, which exported graphs decode.
IN_GRAPH = (JPEG, PNG, b"RIFF")
_JPEG_END = b"\xff\xd9"
# Formats that TensorFlow does not decode, with patterns of the first bytes of their files.
_OTHER_FORMATS = {
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "JPEG 2000": rb"\0\0\0\x0cjP",
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL ",
    "HEIC": rb".{4}ftyp(he[iv]|mif|msf)",
    "AVIF": rb".{4}ftypavi",
    "HTML or XML": rb"<",
    "a Git LFS pointer": rb"version https://git-lfs",
}
# The names of formats in Pillow, if it has them or a plug-in has added them.
_OF_PILLOW = {"TIFF": "TIFF", "AVIF": "AVIF", "HEIC": "HEIF", "JPEG XL": "JXL"}
# Modes of Pillow whose values are read without a conversion.
_MODES = ("L", "LA", "RGB", "RGBA", "I", "I;16", "I;16B", "F")
_BITS_PER_SAMPLE = 258
# The shares of red, green and blue in gray, in 1/65536, as in Pillow.
_GRAY = (19595.0, 38470.0, 7471.0)
# The first bytes of PNG and WebP files, which contain the image size.
_HEAD = 32
# Number of values of a tensor that a message shows.
_SHOWN = 8
# Number of extra pixels to decode on each side of a crop. JPEG interpolates colors from neighboring
# pixels: without extra pixels, values at the edges of a crop would differ by up to 16 of 255.
_JPEG_MARGIN = 4

EXIF_ORIENTATION = 0x0112
_FLOAT_RULE = "Floating-point images need an ImageSpec with value_range=(low, high)"
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


def decode(encoded, image_spec=WHOLE_IMAGE, in_graph=False):
    """Decode an image to the channels and the range of values of an `ImageSpec`.

    JPEG, PNG, still WebP, GIF (the first frame), BMP, TIFF and `.npy` files are decoded, and AVIF,
    HEIC and JPEG XL if Pillow can read them. The format is recognized by the first bytes, not by
    the name of the file. RGB becomes gray for one channel, and gray is repeated for three; alpha is
    dropped for both. CMYK is converted.

    Args:
        encoded: scalar string tensor, the bytes of a file.
        image_spec: an `ImageSpec`. If its `antialias` is true, JPEGs are decoded to the same pixels
            as by Pillow. Otherwise, a faster cosine transform is used, as in vit_jax; its pixel
            values differ by a few of 255.
        in_graph: whether to use only operations that can be exported.

    Returns:
        A tensor `(height, width, channels)` with values in [0, 255]: uint8, or float32 if
        `image_spec.value_range` is given.

    Raises:
        tf.errors.InvalidArgumentError: if the file is truncated, in another format, claims more
            than `MAX_PIXELS` pixels, or has other channels.
    """
    if not image_spec.has_rgb_bytes:
        return as_pixels(*decode_stored(encoded, image_spec, in_graph), image_spec)

    def read():
        return _decode_in_graph(encoded, image_spec.antialias, 3, tf.uint8)[..., :3]

    def read_in_python():
        return tf.py_function(lambda data: _read_rgb(data.numpy()), [encoded], tf.uint8)

    image = read() if in_graph else tf.cond(_is_in_graph(encoded), read, read_in_python)
    return tf.ensure_shape(image, (None, None, 3))


# `decode` for datasets. If the function were inlined, TensorFlow would schedule the operations of
# all decoders, even of decoders that are not used.
decode_function = tf.function(decode, autograph=False, experimental_attributes={"_noinline": True})


def decode_stored(encoded, image_spec, in_graph=False):
    """Decode an image without scaling its values; arguments as in `decode`.

    The number of channels is that of the file. Alpha is dropped if `image_spec` has one or three
    channels.

    Returns:
        `(values, greatest)`, as in `as_pixels`.
    """
    channels = image_spec.channels
    read = functools.partial(_read_in_graph, encoded, image_spec.antialias)
    in_python = functools.partial(_read_in_python, encoded, channels)
    values, greatest = read() if in_graph else tf.cond(_is_in_graph(encoded), read, in_python)
    if channels in (1, 3):
        count = tf.shape(values)[2]
        # Drop alpha: two channels become one, and four become three. In `.npy` files, such numbers
        # of channels are no alpha, and are refused when the file is read.
        values = values[..., : count - 1 + count % 2]
    return values, greatest


def allowed_channels(channels):
    """Return the numbers of channels from which images with `channels` channels can be made."""
    return (1, 3) if channels in (1, 3) else (channels,)


def as_pixels(values, greatest, image_spec):
    """Scale stored values, and convert them to the channels of an `ImageSpec`.

    Args:
        values: float32 tensor `(height, width, any number of channels)`, or a batch of such
            images of one size.
        greatest: float32 scalar tensor, the greatest value of the stored type, or 0 for floats.
        image_spec: an `ImageSpec`.

    Returns:
        A tensor as in `decode`.
    """
    channels, value_range = image_spec.channels, image_spec.value_range
    count, allowed = tf.shape(values)[-1], allowed_channels(channels)
    rule = f"An image must have {channels} channels, its number of channels is"
    checks = [require(tf.reduce_any(count == allowed), rule, count)]
    if not isinstance(value_range, tuple):
        checks.append(require(greatest > 0, _FLOAT_RULE))
    with tf.control_dependencies(checks):
        values = tf.identity(values)
    if value_range is None:
        values = tf.floor(values * (256 / (greatest + 1)))
    else:
        low, high = (0, greatest) if value_range == "dtype" else value_range
        # Both are numbers, or tuples of one number per channel.
        values = (values - low) * (255 / tf.subtract(high, low))
    values = tf.clip_by_value(values, 0, 255)
    if channels == 3:
        values = tf.broadcast_to(values, tf.concat([tf.shape(values)[:-1], [3]], 0))
    elif channels == 1:
        # The sums of 8-bit values are exact in float32.
        weights = tf.cond(count == 3, lambda: tf.constant(_GRAY), lambda: tf.constant((65536.0,)))
        values = tf.reduce_sum(values * weights, -1, keepdims=True) / 65536
        values = tf.floor(values + 0.5) if value_range is None else values
    values = tf.ensure_shape(values, (*values.shape[:-1], channels))
    return tf.cast(values, tf.uint8) if value_range is None else values


def stored_values(values):
    """Return an array as float32, and the greatest value of its type, or 0 for floats."""
    if values.dtype == bool:
        values = values * np.uint8(255)
    is_integer = np.issubdtype(values.dtype, np.integer)
    greatest = np.iinfo(values.dtype).max if is_integer else 0
    return values.astype("float32"), np.float32(greatest)


def is_dark(encoded):
    """Whether a file has more than 8 bits, and its values fill less than an eighth of its range.

    `None` stands for files with 8 bits, of floats, and files that cannot be decoded.
    """
    is_png = encoded.startswith(PNG)
    if encoded.startswith((JPEG, GIF, BMP, b"RIFF")) or (is_png and encoded[24:25] != b"\x10"):
        return None
    try:
        read = _read_in_graph(encoded, False) if is_png else stored_values(_read(encoded, 0))
    except (tf.errors.OpError, ValueError):
        return None
    values, greatest = map(np.asarray, read)
    return values.max() < greatest / 8 if greatest > 255 else None


def _is_in_graph(encoded):
    return tf.reduce_any([starts_with(encoded, signature) for signature in IN_GRAPH])


def _decode_in_graph(encoded, accurate, png_channels, dtype):
    """Decode a JPEG, PNG or still WebP to the values of the file.

    TensorFlow multiplies the values of an 8-bit PNG by 257 if the dtype is uint16.
    """
    with tf.control_dependencies([check_size(declared_size(encoded))]):
        encoded = tf.identity(encoded)
    method = "INTEGER_ACCURATE" if accurate else ""

    def jpeg():
        return tf.cast(tf.io.decode_jpeg(encoded, 3, dct_method=method), dtype)

    def png():
        return tf.io.decode_png(encoded, png_channels, dtype)

    return tf.case(
        [(starts_with(encoded, JPEG), jpeg), (starts_with(encoded, PNG), png)],
        default=lambda: tf.cast(_decode_webp(encoded), dtype),
    )


def _read_in_graph(encoded, accurate):
    """Return the stored values of a JPEG, PNG or still WebP, and their greatest possible value."""
    image = tf.cast(_decode_in_graph(encoded, accurate, 0, tf.uint16), tf.float32)
    is_png = starts_with(encoded, PNG)
    has_16_bits = is_png & (tf.strings.substr(_head(encoded), 24, 1) == b"\x10")
    factor = tf.where(is_png & ~has_16_bits, 257.0, 1.0)
    return image / factor, tf.where(has_16_bits, 65535.0, 255.0)


def _read_in_python(encoded, channels):
    """Return the same as `_read_in_graph` for files that TensorFlow does not decode."""

    # `tf.numpy_function` would drop zeros at the end of the bytes.
    def read(data):
        return stored_values(_read(data.numpy(), channels))

    values, greatest = tf.py_function(read, [encoded], [tf.float32, tf.float32])
    return tf.ensure_shape(values, (None, None, None)), tf.ensure_shape(greatest, ())


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
    # Floats have a range of values, which replaces the scale.
    return image if scale == 1 or image.dtype.is_floating else image * tf.cast(scale, image.dtype)


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
    is_of_pillow = _OF_PILLOW.get(_name_of_format(head)) in _pillow_formats()
    return head.startswith((JPEG, PNG, GIF, BMP, _NPY)) or is_webp or is_of_pillow


def other_format(head):
    """Return a text that names an unsupported format, from the first bytes of a file, or `None`."""
    name = _name_of_format(head)
    is_supported = name is None or _OF_PILLOW.get(name) in _pillow_formats()
    return None if is_supported else f"{name}, which is not decoded"


def _name_of_format(head):
    formats = _OTHER_FORMATS.items()
    return next((name for name, start in formats if re.match(start, head, re.DOTALL)), None)


@functools.cache
def _pillow_formats():
    """Return the names of the formats that Pillow may open, after loading its plug-ins."""
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    with contextlib.suppress(ImportError):
        # The import registers the plug-in.
        importlib.import_module("pillow_jxl")
    return {"GIF", "BMP", *_OF_PILLOW.values()} & {*Image.registered_extensions().values()}


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
            # Pillow turns TIFF files itself.
            exif = {} if image.format == "TIFF" else image.getexif()
            orientation = exif.get(EXIF_ORIENTATION, 1)
    except Exception:
        # Pillow raises a dozen kinds of exceptions for broken files and broken EXIF data. The
        # decoder reports broken files.
        orientation = 1
    return int(orientation) if orientation in range(1, 9) else 1


def _read_rgb(encoded):
    values = _read(encoded, 3)
    # Bytes are not converted to float32, which needs four times the memory.
    if values.dtype != np.uint8:
        values, greatest = stored_values(values)
        if not greatest:
            raise ValueError(_FLOAT_RULE)
        values = np.clip(values * np.float32(256 / (greatest + 1)), 0, 255).astype("uint8")
    return np.broadcast_to(values, (*values.shape[:2], 3))


def _read(encoded, channels):
    """Return the values of a file, an array `(height, width, channels)` of any type.

    Raises `ValueError` if the file cannot be read. Alpha is dropped for one and three channels.
    """
    if not looks_decodable(encoded[:_HEAD]):
        raise ValueError("Unknown image file format")
    try:
        is_npy = encoded.startswith(_NPY)
        values = _read_npy(encoded) if is_npy else _read_by_pillow(encoded, channels)
    # Pillow raises a dozen kinds of exceptions for broken files.
    except Exception as error:
        raise ValueError(re.sub(r" <.*>", "", str(error))) from error
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("An image must have finite values")
    if channels in (1, 3) and values.shape[-1] not in (1, 3):
        count = values.shape[-1]
        raise ValueError(
            f"An image must have {channels} channels, its number of channels is {count}"
        )
    return values


def _read_npy(encoded):
    stream = io.BytesIO(encoded)
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, is_fortran, dtype = header[version](stream)
    if len(shape) not in (2, 3) or not np.prod(shape) or dtype.kind not in "buif":
        raise ValueError(
            f"An array must be (height, width, channels) of numbers, it is {shape} of {dtype}"
        )
    # Nothing is allocated: an error is raised if the file is smaller than the array.
    values = np.frombuffer(encoded, dtype, math.prod(shape), stream.tell())
    values = values.reshape(shape, order="F" if is_fortran else "C")
    return values if values.ndim == 3 else values[..., None]


def _read_by_pillow(encoded, channels):
    with Image.open(io.BytesIO(encoded), formats=[*_pillow_formats()]) as image:
        width, height = image.size
        pages = range(image.n_frames if image.format == "TIFF" else 1)
        # Check the size before the pixels are decoded.
        if not 0 < width * height * len(pages) <= MAX_PIXELS:
            raise ValueError(f"{_SIZE_RULE} {height} {width}")
        bits = image.tag_v2.get(_BITS_PER_SAMPLE, (8,)) if image.format == "TIFF" else (8,)
        if len(bits) > 1 and max(bits) > 8:
            raise ValueError("A TIFF of several channels with more than 8 bits is not decoded")
        read = [_read_page(image, page, (width, height), channels) for page in pages]
        if len({page.dtype for page in read}) > 1:
            raise ValueError("The pages of a TIFF must have the same type of values")
        return np.concatenate(read, -1)


def _read_page(image, page, size, channels):
    if page:
        image.seek(page)
    # Another page may be a decompression bomb.
    if image.size != size:
        raise ValueError(f"The pages of a TIFF must have one size, they are {size}, {image.size}")
    mode = image.mode
    if mode not in _MODES:
        mode = "RGBA" if image.has_transparency_data else "RGB"
    if channels in (1, 3):
        mode = {"LA": "L", "RGBA": "RGB"}.get(mode, mode)
    values = np.asarray(image if mode == image.mode else image.convert(mode))
    return values if values.ndim == 3 else values[..., None]


def _decode_webp(encoded):
    head = _head(encoded)
    flags = tf.io.decode_raw(tf.strings.substr(head, 20, 1), tf.uint8)[0]
    is_animated = (tf.strings.substr(head, 12, 4) == b"VP8X") & (flags & 2 > 0)
    # TensorFlow 2.21 writes beyond the end of a buffer when it decodes an animation.
    with tf.control_dependencies([require(~is_animated, "An animated WebP is not decoded")]):
        encoded = tf.identity(encoded)
    # All channels, because `decode_image(channels=3)` raises an error for images with alpha.
    return tf.io.decode_image(encoded, expand_animations=False)
