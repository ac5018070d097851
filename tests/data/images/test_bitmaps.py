"""Every kind of BMP is decoded as Pillow decodes it, or refused in one sentence."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.data.images.decoding import decode
from tests.fixtures.images import random_image
from tests.fixtures.photos import to_bytes

decode_in_graph = tf.function(decode, input_signature=[tf.TensorSpec((), tf.string)])
HEIGHT, WIDTH = 5, 7
UNCOMPRESSED, RLE8, RLE4, BITFIELDS, AS_JPEG, AS_PNG = range(6)
USUAL_MASKS = (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
PALETTE = np.random.default_rng(0).integers(0, 256, (256, 3)).astype("uint8")
REFUSED = "A BMP must be uncompressed, with 8, 24 or 32 bits per pixel"
CUT_OFF = "A BMP must be complete"
NO_COLOR = "one of the colors in its palette.* are.*"


def bitmap(
    bits=24,
    header=40,
    compression=UNCOMPRESSED,
    masks=(),
    palette=(),
    colors=None,
    gap=0,
    top_down=False,
    data=None,
):
    """The bytes of a BMP of noise; `gap` is the number of bytes between palette and pixels."""
    stride = (WIDTH * bits + 31) // 32 * 4
    if data is None:
        largest = (len(palette) or 256) if bits == 8 else 256
        rows = np.random.default_rng(1).integers(0, largest, (HEIGHT, stride))
        data = rows.astype("uint8").tobytes()
    table = b"".join(bytes([*color[::-1], 0]) for color in palette)
    fields = struct.pack(
        "<iiHHIIiiII",
        *(WIDTH, -HEIGHT if top_down else HEIGHT, 1, bits, compression, len(data), 0, 0),
        *(len(palette) if colors is None else colors, 0),
    )
    if header == 12:
        fields = struct.pack("<HHHH", WIDTH, HEIGHT, 1, bits)
    between = struct.pack(f"<{len(masks)}I", *masks)
    if header > 40:
        fields, between = (fields + between).ljust(header - 4, b"\0"), b""
    info = struct.pack("<I", header) + fields + between + table + bytes(gap)
    return struct.pack("<2sIII", b"BM", 14 + len(info) + len(data), 0, 14 + len(info)) + info + data


def changed(encoded, place, kind, value):
    size = struct.calcsize(kind)
    return encoded[:place] + struct.pack(kind, value) + encoded[place + size :]


DECODED = {
    "24 bits": bitmap(),
    "24 bits from the top": bitmap(top_down=True),
    "24 bits after a gap": bitmap(gap=3),
    "24 bits with a palette": bitmap(palette=PALETTE[:9]),
    "24 bits with masks": bitmap(compression=BITFIELDS, masks=USUAL_MASKS[:3]),
    "24 bits of OS/2's second header": bitmap(header=64),
    "32 bits": bitmap(32),
    "32 bits from the top": bitmap(32, top_down=True),
    "32 bits with masks": bitmap(32, compression=BITFIELDS, masks=USUAL_MASKS[:3]),
    "32 bits with masks in the header": bitmap(32, 52, BITFIELDS, USUAL_MASKS[:3]),
    "32 bits with alpha": bitmap(32, 108, BITFIELDS, USUAL_MASKS),
    "32 bits with alpha in the last header": bitmap(32, 124, BITFIELDS, USUAL_MASKS),
    "256 colors": bitmap(8, palette=PALETTE),
    "256 colors from the top": bitmap(8, palette=PALETTE, top_down=True),
    "256 colors whose number is left out": bitmap(8, palette=PALETTE, colors=0),
    "256 colors after the last header": bitmap(8, header=124, palette=PALETTE),
    "5 colors": bitmap(8, palette=PALETTE[:5]),
    "5 colors after a gap": bitmap(8, palette=PALETTE[:5], gap=7),
    "bytes after the pixels": bitmap() + b"\0\0",
    "bytes after the pixels of 256 colors": bitmap(8, palette=PALETTE) + b"\0",
    "256 levels of grey": bitmap(8, palette=[(level,) * 3 for level in range(256)]),
}


@pytest.mark.parametrize("name", DECODED)
def test_a_bmp_is_decoded_as_by_pillow(name):
    expected = np.asarray(Image.open(io.BytesIO(DECODED[name])).convert("RGB"))
    assert expected.shape == (HEIGHT, WIDTH, 3)
    assert expected.std() > 0
    np.testing.assert_array_equal(decode(DECODED[name]), expected)
    np.testing.assert_array_equal(decode_in_graph(DECODED[name]), expected)


PLAIN, OF_COLORS = bitmap(), bitmap(8, palette=PALETTE[:5])
BLACK_AND_WHITE = to_bytes(Image.fromarray(random_image()).convert("1"), "BMP")
# Each row is six times the same color; as pixels there would be enough bytes.
RUNS = b"\7\1\0\0" * HEIGHT + bytes(40)
REFUSALS = {
    # The message says what was found.
    "1 bit": (BLACK_AND_WHITE, REFUSED + r".*width are\] \[1 0 2 40 62 16\]"),
    "1 bit of two colors": (bitmap(1, palette=PALETTE[:2]), REFUSED),
    "4 bits": (bitmap(4, palette=PALETTE[:16]), REFUSED),
    "9 bits": (bitmap(9), REFUSED),
    "16 bits": (bitmap(16), REFUSED),
    "16 bits with masks": (bitmap(16, 52, BITFIELDS, (0xF800, 0x7E0, 0x1F)), REFUSED),
    "48 bits": (bitmap(48), REFUSED),
    "RLE of 8 bits": (bitmap(8, 40, RLE8, palette=PALETTE, data=RUNS), REFUSED),
    "RLE of 4 bits": (bitmap(4, 40, RLE4, palette=PALETTE[:16], data=RUNS), REFUSED),
    "RLE of 24 bits": (bitmap(24, 64, AS_JPEG), REFUSED),
    "a JPEG in it": (bitmap(24, 40, AS_JPEG), REFUSED),
    "a PNG in it": (bitmap(32, 40, AS_PNG), REFUSED),
    "other masks": (bitmap(32, 52, BITFIELDS, (0xFF, 0xFF00, 0xFF0000)), REFUSED),
    "300 colors": (bitmap(8, palette=[*PALETTE, *PALETTE[:44]]), REFUSED),
    "2 ** 32 - 1 colors": (bitmap(8, palette=PALETTE, colors=2**32 - 1), REFUSED),
    "masks of zeros": (bitmap(32, 52, BITFIELDS, (0, 0, 0)), REFUSED),
    "masks for colors": (bitmap(8, 52, BITFIELDS, USUAL_MASKS[:3], palette=PALETTE), REFUSED),
    "OS/2's first header": (bitmap(header=12), REFUSED),
    "an unknown header": (bitmap(header=44), REFUSED),
    "pixels at the start of the file": (changed(PLAIN, 10, "<i", 0), REFUSED),
    "pixels in the header": (changed(PLAIN, 10, "<i", 50), REFUSED),
    "a negative width": (changed(PLAIN, 18, "<i", -WIDTH), REFUSED),
    "a negative width and height": (changed(bitmap(top_down=True), 18, "<i", -WIDTH), REFUSED),
    "two letters": (b"BM", REFUSED),
    "words": (b"BMWs are cars, and this is a text of several words in one sentence.", REFUSED),
    "half a header": (PLAIN[:25], REFUSED),
    "a header without the masks": (bitmap(32, 52, BITFIELDS, USUAL_MASKS[:3])[:54], REFUSED),
    "no height": (changed(PLAIN, 22, "<i", 0), "An image must have from 1 to"),
    "the lowest height": (changed(PLAIN, 22, "<i", -(2**31)), "An image must have from 1 to"),
    "a byte less": (PLAIN[:-1], CUT_OFF),
    "colors and a byte less": (OF_COLORS[:-1], CUT_OFF),
    "no pixels": (OF_COLORS[:60], CUT_OFF),
    "pixels after the end": (changed(PLAIN, 10, "<i", 2**30), CUT_OFF),
    "a color too many": (bitmap(8, palette=PALETTE[:5], data=b"\5" + b"\4" * 39), NO_COLOR + "5 5"),
    "no palette": (bitmap(8), NO_COLOR + "0 250"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_bmp_is_refused_for_what_it_is(name):
    encoded, message = REFUSALS[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode(encoded)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode_in_graph(encoded)
