"""Headers of image files, as TensorFlow functions of their bytes.

TensorFlow has an operation only for the size of a JPEG. The sizes of other formats are read here,
so that a file is refused before its pixels are decoded.
"""

import tensorflow as tf

JPEG, PNG, GIF, BMP = b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM"
_JPEG_END = b"\xff\xd9"
# Number of values of a tensor that a message shows.
_SHOWN = 8

_GIF_EXTENSION = 0x21

# WebP files without extensions (VP8 and VP8L) store a side in 14 bits.
_WEBP_SIDE = 0x3FFF

# Sizes of the BMP headers of Windows and OS/2 2.x, with fields at the same offsets. The header of
# OS/2 1.x, of 12 bytes, is not supported.
_BMP_HEADERS, _OS2_HEADER = (40, 52, 56, 64, 108, 124), 64
_BMP_FILE_HEADER = 14
# Where the 32-bit fields are: offset of the pixels, header size, width, height, compression, colors
# and masks; and the 16 bits that hold the number of bits per pixel.
_BMP_FIELDS, _BMP_BITS = (10, 14, 18, 22, 30, 46, 54, 58, 62), 28
_UNCOMPRESSED, _BITFIELDS = 0, 3
# Masks of red, green and blue. TensorFlow reads the bytes of a pixel as blue, green, red.
_BMP_MASKS = (0xFF0000, 0xFF00, 0xFF)


def as_one_operation(function):
    """Make a function a single operation in a graph.

    TensorFlow visits every operation of every branch, even of branches that are not taken. In eager
    execution the function is called as it is, because a `tf.function` makes its errors very long.
    """
    in_graphs = tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
    return lambda encoded: (function if tf.executing_eagerly() else in_graphs)(encoded)


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
    """Raise `tf.errors.InvalidArgumentError` unless a condition is met.

    `tf.debugging.Assert` puts the assertion in a branch, which costs more than the assertion.
    """
    data = [tf.convert_to_tensor(part) for part in message]
    return tf.raw_ops.Assert(condition=condition, data=data, summarize=_SHOWN)


def is_webp(encoded):
    """Whether the bytes begin like a WebP: RIFF, the length, WEBP."""
    is_long = tf.strings.length(encoded) > 30
    # `substr` refuses offsets beyond the end.
    head = tf.cond(is_long, lambda: tf.strings.substr(encoded, 8, 4), lambda: b"")
    return starts_with(encoded, b"RIFF") & (head == b"WEBP")


def declared_size(encoded):
    """Return the height and the width in the header of a file.

    Args:
        encoded: scalar string tensor, the bytes of a file.

    Returns:
        An int32 tensor `(2,)`.

    Raises:
        tf.errors.InvalidArgumentError: if the bytes are not a JPEG, PNG, GIF, BMP or WebP file, or
            a kind of BMP or GIF that is not decoded.
    """
    return tf.case(
        [
            (starts_with(encoded, JPEG), lambda: tf.io.extract_jpeg_shape(encoded)[:2]),
            (starts_with(encoded, PNG), lambda: _integers(encoded, 16, 2, ">u4")[::-1]),
            (starts_with(encoded, GIF), lambda: _gif_size(encoded)),
            (starts_with(encoded, BMP), lambda: _bmp_size(encoded)),
            (is_webp(encoded), lambda: _webp_size(encoded)),
        ],
        default=lambda: _refuse("Unknown image file format"),
    )


def is_animated_webp(encoded):
    """Whether a WebP is an animation, as a boolean tensor."""
    return _webp_flag(encoded, b"VP8X", 20, 0x02)


def webp_has_alpha(encoded):
    """Whether a WebP has an alpha channel, as a boolean tensor."""
    return _webp_flag(encoded, b"VP8X", 20, 0x10) | _webp_flag(encoded, b"VP8L", 24, 0x10)


def _webp_flag(encoded, kind, at, flag):
    is_kind = tf.strings.substr(encoded, 12, 4) == kind
    return is_kind & (tf.bitwise.bitwise_and(_byte(encoded, at), flag) > 0)


def cut_bmp(encoded):
    """Return a BMP without bytes after the pixels: TensorFlow refuses a BMP that has such bytes.

    `declared_size` must have accepted it. Raises `InvalidArgumentError` if pixels are missing.
    """
    fields, bits = _bmp_fields(encoded)
    pixels, _, width, height = tf.unstack(tf.cast(fields[:4], tf.int64))
    # Each row is padded to whole words of 32 bits.
    end = pixels + (width * tf.cast(bits, tf.int64) + 31) // 32 * 4 * tf.abs(height)
    length = tf.cast(tf.strings.length(encoded), tf.int64)
    message = "A BMP must be complete. Its required and actual sizes in bytes are"
    with tf.control_dependencies([require(end <= length, message, tf.stack([end, length]))]):
        return tf.strings.substr(encoded, tf.zeros((), tf.int64), end)


def bmp_palette(encoded):
    """Return the colors of a complete BMP with 8 bits per pixel, a uint8 tensor `(colors, 3)`."""
    fields, _ = _bmp_fields(encoded)
    pixels, start, count = fields[0], _BMP_FILE_HEADER + fields[1], fields[5]
    # The header may leave out the number of colors where it is 256.
    count = tf.minimum(tf.where(count == 0, 256, count), (pixels - start) // 4)
    colors = tf.io.decode_raw(tf.strings.substr(encoded, start, 4 * count), tf.uint8)
    # Blue, green, red and an unused byte.
    return tf.reshape(colors, (-1, 4))[:, 2::-1]


@as_one_operation
def _gif_size(encoded):
    """Return the size of a GIF whose first frame fills it; TensorFlow misplaces smaller frames."""
    canvas = _integers(encoded, 6, 2, "<u2")
    frame = _integers(encoded, _find_gif_frame(encoded) + 1, 4, "<u2")
    fills = tf.reduce_all(frame == tf.concat([[0, 0], canvas], 0))
    message = (
        "The first frame of a GIF must fill its canvas. The frame's left, top, width and height, "
        "and the canvas's width and height are"
    )
    with tf.control_dependencies([require(fills, message, tf.concat([frame, canvas], 0))]):
        return canvas[::-1]


def _find_gif_frame(encoded):
    """Return the place of the first frame, after the palette and the extensions."""
    flags = _byte(encoded, 10)
    # Three bytes for each of 2, 4, ... 256 colors, if the upper bit says that there is a palette.
    palette = tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)
    length = tf.strings.length(encoded)

    def is_before_frame(place, is_in_extension):
        is_extension = _byte(encoded, place) == _GIF_EXTENSION
        return (place < length) & (is_in_extension | is_extension)

    def step(place, is_in_extension):
        # An extension is two bytes, then blocks that begin with their lengths, the last with 0.
        block = _byte(encoded, place)
        return place + tf.where(is_in_extension, block + 1, 2), ~is_in_extension | (block > 0)

    return tf.while_loop(is_before_frame, step, (13 + palette, tf.constant(False)))[0]


@as_one_operation
def _bmp_size(encoded):
    """Return the size of a BMP, and refuse the kinds that TensorFlow would decode wrongly."""
    fields, bits = _bmp_fields(encoded)
    pixels, header, width, height, compression, colors = tf.unstack(fields[:6])
    has_usual_masks = tf.reduce_all(fields[6:] == _BMP_MASKS) & (bits > 8) & (header != _OS2_HEADER)
    is_decoded = (
        tf.reduce_any(header == _BMP_HEADERS)
        & tf.reduce_any(bits == (8, 24, 32))
        & ((bits > 8) | (colors >= 0) & (colors <= 256))
        & ((compression == _UNCOMPRESSED) | (compression == _BITFIELDS) & has_usual_masks)
        & (width > 0)
        & (pixels >= _BMP_FILE_HEADER + header)
    )
    message = (
        "A BMP must be uncompressed, with 8, 24 or 32 bits per pixel (blue, green, red), at most "
        "256 colors, and a header of at least 40 bytes before its pixels. Its bits per pixel, "
        "compression, colors, header size, offset of the pixels and width are"
    )
    found = tf.stack([bits, compression, colors, header, pixels, width])
    with tf.control_dependencies([require(is_decoded, message, found)]):
        # A negative height means that the rows are stored from the top.
        return tf.stack([tf.abs(height), width])


def _bmp_fields(encoded):
    """Return the integers at `_BMP_FIELDS`, an int32 tensor, and the number of bits per pixel."""
    halves = _integers(encoded, 0, (_BMP_FIELDS[-1] + 4) // 2, "<u2")
    lower, upper = ([(at + more) // 2 for at in _BMP_FIELDS] for more in (0, 2))
    return tf.gather(halves, lower) + 65536 * tf.gather(halves, upper), halves[_BMP_BITS // 2]


def _webp_size(encoded):
    kind = tf.strings.substr(encoded, 12, 4)
    return tf.case(
        [
            (kind == b"VP8X", lambda: _webp_extended_size(encoded)),
            (kind == b"VP8L", lambda: _webp_lossless_size(encoded)),
        ],
        # Each side is 14 bits of a 16-bit integer, whose upper two bits are a scale.
        default=lambda: _integers(encoded, 26, 2, "<u2")[::-1] % (_WEBP_SIDE + 1),
    )


def _webp_extended_size(encoded):
    """Return the size of a file that stores width - 1 and height - 1 in three bytes each."""
    sides = tf.reshape(_integers(encoded, 24, 6, "<u1"), (2, 3))
    return tf.reduce_sum(sides * (1, 256, 65536), axis=1)[::-1] + 1


def _webp_lossless_size(encoded):
    """Return the size of a file that stores width - 1 and height - 1 in 14 bits each."""
    bits = _integers(encoded, 21, 1, "<i4")[0]
    width = tf.bitwise.bitwise_and(bits, _WEBP_SIDE)
    height = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 14), _WEBP_SIDE)
    return tf.stack([height, width]) + 1


def _byte(encoded, at):
    return _integers(encoded, at, 1, "<u1")[0]


def _integers(encoded, at, count, kind):
    """Return integers of a header as int32: `"<u2"` is little-endian, unsigned, of two bytes.

    Beyond the end of the file they are zeros, which are not a valid size.
    """
    dtypes = {"u1": tf.uint8, "u2": tf.uint16, "i4": tf.int32, "u4": tf.int32}
    order, dtype = kind[0], dtypes[kind[1:]]
    length = count * dtype.size
    # `substr` refuses a place after the end, with a message of bytes that Python cannot decode.
    piece = tf.strings.substr(encoded, tf.minimum(at, tf.strings.length(encoded)), length)
    piece = tf.strings.substr(tf.strings.join([piece, bytes(length)]), 0, length)
    values = tf.io.decode_raw(piece, dtype, little_endian=order == "<")
    return tf.cast(tf.ensure_shape(values, (count,)), tf.int32)


def _refuse(reason):
    with tf.control_dependencies([require(False, reason)]):
        return tf.zeros(2, "int32")
