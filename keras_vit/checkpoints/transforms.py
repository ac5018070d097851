"""Convert arrays of files to values of variables, and back: axes, heads, and normalization.

A `Transform` converts one array of a file to one or more variables of the model, and back.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Transform:
    """An invertible conversion between one array and one or more variables.

    Args:
        meaning: description of the conversion when a file is read, for the documentation.
        shape: `shape(shapes, num_heads)` returns the shape of the array, given the shapes of the
            variables and the model's number of attention heads.
        read: `read(array, shapes)` returns the values of the variables.
        write: `write(values, num_heads)` returns the array.
        accepts: `accepts(actual, expected)` returns whether an array of the shape `actual` can be
            read where `shape` returns `expected`.
    """

    meaning: str
    shape: Callable
    read: Callable
    write: Callable
    accepts: Callable = lambda actual, expected: actual == expected


def _single(meaning, shape, read, write, **options):
    """Return a transform between one array and one variable."""
    return Transform(
        meaning,
        lambda shapes, num_heads: shape(shapes[0], num_heads),
        lambda array, shapes: [read(array, shapes[0])],
        lambda values, num_heads: write(values[0], num_heads),
        **options,
    )


def _reshaped(meaning, shape, **options):
    """Return a transform that only reshapes."""

    def write(value, num_heads):
        return value.reshape(shape(value.shape, num_heads))

    return _single(meaning, shape, np.reshape, write, **options)


def _transposed(meaning, shape):
    """Return a transform of a PyTorch matrix, which is the transpose of a kernel."""
    return _single(
        meaning,
        lambda target, num_heads: shape(target),
        lambda array, target: array.T.reshape(target),
        lambda value, num_heads: value.reshape(shape(value.shape)[::-1]).T,
    )


def _split(meaning, transform):
    """Return a transform of an array that concatenates variables, each converted by `transform`."""

    def shape(shapes, num_heads):
        length, *rest = transform.shape(shapes[:1], num_heads)
        return (len(shapes) * length, *rest)

    return Transform(
        meaning,
        shape,
        lambda array, shapes: [
            transform.read(piece, [shape])[0]
            for piece, shape in zip(np.split(array, len(shapes)), shapes, strict=True)
        ],
        lambda values, num_heads: np.concatenate([transform.write([v], num_heads) for v in values]),
    )


IDENTITY = _single(
    "unchanged",
    lambda shape, num_heads: shape,
    lambda array, shape: array,
    lambda value, num_heads: value,
)
UNBATCHED = _reshaped("(rows, width) to (1, rows, width)", lambda shape, num_heads: shape[1:])
DENSE = _transposed("(out, in) to (in, out)", lambda shape: shape[::-1])
POSITION_ROWS = "; missing rows of class token and registers are zero"

TRANSFORMS = {
    "identity": IDENTITY,
    # `position_rows.py` fits the rows to the tokens of the model.
    "positions": dataclasses.replace(IDENTITY, meaning=IDENTITY.meaning + POSITION_ROWS),
    "flat_positions": dataclasses.replace(UNBATCHED, meaning=UNBATCHED.meaning + POSITION_ROWS),
    "unbatched": UNBATCHED,
    "flat_token": _reshaped("(width) to (1, 1, width)", lambda shape, num_heads: shape[2:]),
    "flat_patches": _transposed(
        "(out, height x width x in) to (height, width, in, out)",
        lambda shape: (shape[3], shape[0] * shape[1] * shape[2]),
    ),
    "dense": DENSE,
    "convolution": _single(
        "(out, in, height, width) to (height, width, in, out)",
        lambda shape, num_heads: (shape[3], shape[2], shape[0], shape[1]),
        lambda array, shape: array.transpose(2, 3, 1, 0),
        lambda value, num_heads: value.transpose(3, 2, 0, 1),
    ),
    "to_heads": _reshaped(
        "(in, heads, size) to (in, heads x size)",
        lambda shape, num_heads: (shape[0], num_heads, shape[1] // num_heads),
    ),
    "from_heads": _reshaped(
        "(heads, size, out) to (heads x size, out)",
        lambda shape, num_heads: (num_heads, shape[0] // num_heads, shape[1]),
    ),
    "heads_bias": _reshaped(
        "(heads, size) to (heads x size)",
        lambda shape, num_heads: (num_heads, shape[0] // num_heads),
    ),
    # Flax kept GroupNorm's parameters in four dimensions until google/flax#1721.
    "group_norm": _reshaped(
        "(1, 1, 1, channels) to (channels); (channels) is read too",
        lambda shape, num_heads: (1, 1, 1, *shape),
        accepts=lambda actual, expected: actual in (expected, expected[3:]),
    ),
    "flat_group_norm": _reshaped(
        "unchanged; (1, 1, 1, channels) is read too",
        lambda shape, num_heads: shape,
        accepts=lambda actual, expected: actual in (expected, (1, 1, 1, *expected)),
    ),
    "pointwise": _reshaped("(1, 1, in, out) to (in, out)", lambda shape, num_heads: (1, 1, *shape)),
    "split_dense": _split("split along the first axis, then each like `dense`", DENSE),
    "split": _split("split along the first axis", IDENTITY),
    "split_without_key": Transform(
        "query and value of (query, key, value); the bias of the key is masked",
        lambda shapes, num_heads: (3 * shapes[0][0],),
        lambda array, shapes: np.split(array, 3)[::2],
        lambda values, num_heads: np.concatenate([values[0], 0 * values[0], values[1]]),
    ),
}


KERNEL = "patch_embedding/projection/kernel"
BIAS = "patch_embedding/projection/bias"


def absorb(kernel, image_spec):
    """Absorb the normalization of pixels into the kernel and the bias of the patch projection.

    Return the kernel for images in [-1, 1], and a vector to add to the bias.

    Let `W` be the kernel of a model trained on `(p - mean) / deviation`, for pixels `p` in [0, 1].
    The kernel `W / (2 deviation)`, with `sum(W (0.5 - mean) / deviation)` added to the bias,
    computes the same from `x = 2 p - 1`. big_vision converts the weights of DeiT III in the same
    way (`models/vit.py`).

    `kernel` is float32 `(height, width, channels, filters)`; the results are float64.
    """
    mean, deviation = _columns(image_spec)
    kernel = kernel.astype("float64")
    return kernel / (2 * deviation), _shift(kernel, mean, deviation)


def undo_absorb(values, image_spec):
    """Return the kernel and bias, by path, for normalized images: the inverse of `absorb`.

    `values` are the values, by path, of the variables of a model that takes images in [-1, 1].
    """
    mean, deviation = _columns(image_spec)
    kernel = values[KERNEL].astype("float64") * (2 * deviation)
    bias = values.get(BIAS, 0) - _shift(kernel, mean, deviation)
    return {KERNEL: kernel.astype("float32"), BIAS: bias.astype("float32")}


def check_channels(image_spec, channels, source):
    """Raise an error unless mean and deviation have one number, or one number per channel."""
    if any(len(values) not in (1, channels) for values in image_spec.normalization):
        raise ValueError(
            f"Mean and standard deviation of pixels must be one number or {channels}, one for each "
            f"channel. Received: {source}, with {image_spec.normalization}"
        )


def _columns(image_spec):
    """Return mean and deviation as float64 arrays that broadcast with a kernel."""
    return (np.array(values, "float64")[:, None] for values in image_spec.normalization)


def _shift(kernel, mean, deviation):
    return (kernel * ((0.5 - mean) / deviation)).sum(axis=(0, 1, 2))
