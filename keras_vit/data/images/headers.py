"""Headers of image files, as TensorFlow functions of their bytes.

TensorFlow has an operation only for the size of a JPEG. The sizes of other formats are read here,
so that a file is refused before its pixels are decoded.
"""

import tensorflow as tf

JPEG, PNG, GIF, BMP = b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM"
_JPEG_END = b"\xff\xd9"
# Number of values of a tensor that a message shows.
_SHOWN = 8

# WebP files without extensions (VP8 and VP8L) store a side in 14 bits.
_WEBP_SIDE = 0x3FFF


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
        tf.errors.InvalidArgumentError: if the bytes are not a JPEG, PNG or WebP file.
    """
    return tf.case(
        [
            (starts_with(encoded, JPEG), lambda: tf.io.extract_jpeg_shape(encoded)[:2]),
            (starts_with(encoded, PNG), lambda: _integers(encoded, 16, 2, ">u4")[::-1]),
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
    return is_kind & (tf.bitwise.bitwise_and(_integers(encoded, at, 1, "<u1")[0], flag) > 0)


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
