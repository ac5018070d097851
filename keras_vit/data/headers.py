"""What the header of an image file tells, as TensorFlow functions of its bytes.

TensorFlow has an operation for the size of a JPEG alone. The others are read here from the places
where their formats keep them, so that a file is refused before its pixels are decoded.
"""

import tensorflow as tf

JPEG, PNG, GIF, BMP = b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM"
_JPEG_END = b"\xff\xd9"

# A side of a WebP has 14 bits.
_WEBP_SIDE = 0x3FFF


def starts_with(encoded, signature):
    """Whether the bytes start with a signature, as a boolean tensor."""
    return tf.strings.substr(encoded, 0, len(signature)) == signature


def is_complete_jpeg(encoded):
    """Whether the bytes are those of a JPEG to its end, as a boolean tensor.

    Of a JPEG that is cut off, the upper parts can be decoded.
    """
    return starts_with(encoded, JPEG) & (tf.strings.substr(encoded, -2, 2) == _JPEG_END)


def require(condition, *message):
    """Raises `tf.errors.InvalidArgumentError` where the condition is not met.

    `tf.debugging.Assert` does the same behind a branch, which takes longer than the assertion.
    """
    data = [tf.convert_to_tensor(part) for part in message]
    return tf.raw_ops.Assert(condition=condition, data=data)


def is_webp(encoded):
    """Whether the bytes are those of a WebP: RIFF, the length, WEBP."""
    is_long = tf.strings.length(encoded) > 30
    # Of a shorter string `substr` takes none of the later bytes.
    head = tf.cond(is_long, lambda: tf.strings.substr(encoded, 8, 4), lambda: b"")
    return starts_with(encoded, b"RIFF") & (head == b"WEBP")


def declared_size(encoded):
    """The height and the width that a file's header tells.

    Args:
        encoded: scalar string tensor, the bytes of a file.

    Returns:
        An int32 tensor `(2,)`.

    Raises:
        tf.errors.InvalidArgumentError: if the bytes are not a JPEG, PNG, GIF, BMP or WebP file.
    """
    return tf.case(
        [
            (starts_with(encoded, JPEG), lambda: tf.io.extract_jpeg_shape(encoded)[:2]),
            (starts_with(encoded, PNG), lambda: _integers(encoded, 16, 2, ">u4")[::-1]),
            (starts_with(encoded, GIF), lambda: _integers(encoded, 6, 2, "<u2")[::-1]),
            # A negative height means that the rows are stored from the top.
            (starts_with(encoded, BMP), lambda: tf.abs(_integers(encoded, 18, 2, "<i4")[::-1])),
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


def bmp_palette(encoded):
    """The colours of a BMP of 8 bits a pixel.

    Args:
        encoded: scalar string tensor, the bytes of a BMP file.

    Returns:
        A uint8 tensor `(colours, 3)`, empty where the file has another number of bits.
    """
    start = 14 + _integers(encoded, 14, 1, "<i4")[0]
    stop = _integers(encoded, 10, 1, "<i4")[0]
    bits = _integers(encoded, 28, 1, "<u2")[0]
    length = tf.where(bits == 8, stop - start, 0)
    colours = tf.io.decode_raw(tf.strings.substr(encoded, start, length), tf.uint8)
    # Blue, green, red and a byte that is not used.
    return tf.reshape(colours, (-1, 4))[:, 2::-1]


def _webp_size(encoded):
    kind = tf.strings.substr(encoded, 12, 4)
    return tf.case(
        [
            (kind == b"VP8X", lambda: _webp_extended_size(encoded)),
            (kind == b"VP8L", lambda: _webp_lossless_size(encoded)),
        ],
        # The two sides in 14 bits each; the upper two bits of each are a scale.
        default=lambda: _integers(encoded, 26, 2, "<u2")[::-1] % (_WEBP_SIDE + 1),
    )


def _webp_extended_size(encoded):
    """Two sides less one, of three bytes each."""
    sides = [
        _byte(encoded, at) + 256 * _byte(encoded, at + 1) + 65536 * _byte(encoded, at + 2)
        for at in (27, 24)
    ]
    return tf.stack(sides) + 1


def _webp_lossless_size(encoded):
    """Two sides less one, of 14 bits each, one behind the other."""
    bits = _integers(encoded, 21, 1, "<i4")[0]
    width = tf.bitwise.bitwise_and(bits, _WEBP_SIDE)
    height = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 14), _WEBP_SIDE)
    return tf.stack([height, width]) + 1


def _byte(encoded, at):
    return _integers(encoded, at, 1, "<u1")[0]


def _integers(encoded, at, count, kind):
    """Integers of a header as int32: `"<u2"` is little-endian and unsigned, of two bytes."""
    dtypes = {"u1": tf.uint8, "u2": tf.uint16, "i4": tf.int32, "u4": tf.int32}
    order, dtype = kind[0], dtypes[kind[1:]]
    piece = tf.strings.substr(encoded, at, count * dtype.size)
    return tf.cast(tf.io.decode_raw(piece, dtype, little_endian=order == "<"), tf.int32)


def _refuse(reason):
    with tf.control_dependencies([require(False, reason)]):
        return tf.zeros(2, "int32")
