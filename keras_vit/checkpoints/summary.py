"""Describe a checkpoint file without loading it, and compare two of them."""

import dataclasses
import math
import os

import keras
import numpy as np

from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.load import describe_checkpoint, from_checkpoint, warn_of_assumed
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.models.options import Options, changed_options, option_differences
from keras_vit.models.variants import match_variant, size_differences
from keras_vit.models.vit import variable_shapes


@dataclasses.dataclass(frozen=True)
class Summary:
    """The contents of a checkpoint file.

    Args:
        path: path of the file.
        format: name of the file's layout.
        variant: name of the builder of this architecture, or `None` if only `vision_transformer`
            or `resnet` builds it.
        options: options of `vision_transformer` or `resnet`, at the image size of the file.
        dtypes: names of the dtypes of the arrays.
        class_names: recorded names of the classes, or `None`.
        parameters: number of parameters.
        head_state: `"zero"` if all weights of the head are zero; `"not finite"` if a weight of
            the head is NaN or infinite, so that the file cannot be loaded; otherwise `None`.
        ignored: names of arrays that are not part of the model, such as the state of an optimizer.
    """

    path: str
    format: str
    variant: str | None
    options: Options
    dtypes: tuple[str, ...]
    class_names: tuple[str, ...] | None
    parameters: int
    head_state: str | None
    ignored: tuple[str, ...]


def inspect_checkpoint(
    path: str | os.PathLike,
    num_heads: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    format: str | None = None,
    key: str | None = None,
) -> Summary:
    """Describe a checkpoint file without loading it.

    The names and shapes of all arrays are checked against the model. Only the values of the head
    are read.

    Args:
        path: as in `from_checkpoint`.
        num_heads: as in `from_checkpoint`.
        image_size: as in `from_checkpoint`.
        format: as in `from_checkpoint`.
        key: as in `from_checkpoint`.

    Returns:
        A `Summary`.

    Raises:
        ValueError: as `from_checkpoint`.

    Example:
    >>> summary = keras_vit.checkpoints.inspect_checkpoint(
    ...     "tests/data/reference/a_vit_token.ckpt.npz")
    >>> summary.format, summary.parameters, summary.options.num_heads
    ('google', 67594, 4)
    """
    file = find_file(path)
    with open_checkpoint(file, format, key) as checkpoint:
        options = describe_checkpoint(checkpoint, num_heads, image_size)
        warn_of_assumed(checkpoint, options, num_heads)
        saved = getattr(checkpoint.archive, "model", None)
        row, shapes = match_variant(options), variable_shapes(options)
        num_heads = getattr(options, "num_heads", None)
        checkpoint.match(options.name, shapes, options.grid, num_heads)
        return Summary(
            str(file),
            checkpoint.format.name,
            row.name if row else None,
            options,
            tuple(checkpoint.dtypes),
            checkpoint.class_names(options.num_classes)
            if saved is None
            else getattr(saved, "class_names", None),
            sum(map(math.prod, shapes.values())),
            checkpoint.head_state(),
            tuple(checkpoint.naming.ignored),
        )


def variant_differences(options, variant):
    """Return one line per option that differs from the options of a variant."""
    different = size_differences(variant, options)
    if "family" not in different:
        different |= changed_options(options, variant)
    return [f"{name}: {value}, not {usual}" for name, (value, usual) in different.items()]


def compare_checkpoints(path, other, num_heads=None, image_size=None):
    """Return one line per difference of two checkpoints, in options, class names and values.

    Args:
        path: as in `from_checkpoint`.
        other: path of the other checkpoint.
        num_heads: as in `from_checkpoint`, for both checkpoints.
        image_size: as in `from_checkpoint`, for both checkpoints.

    Returns:
        A list of strings.
    """
    models = [
        from_checkpoint(file, image_size=image_size, num_heads=num_heads) for file in (path, other)
    ]
    options, other_options = (model.options for model in models)
    different = size_differences(options, other_options)
    if "family" not in different:
        names = [*options.names(), *options.names("size", "training")]
        different = option_differences(options, other_options, names)
    lines = [f"{name}: {a!r} and {b!r}" for name, (a, b) in different.items()]
    names = (inspect_checkpoint(file, num_heads, image_size).class_names for file in (path, other))
    # A different number of classes is listed among the options.
    for index, (a, b) in enumerate(zip(*(each or () for each in names), strict=False)):
        lines += [f"class {index}: {a!r} and {b!r}"] if a != b else []
    return lines + _value_differences(*models)


def _value_differences(model, other):
    """Return one line per variable that only one model has, or whose shape or values differ."""
    first, second = ({v.path: v for v in m.weights} for m in (model, other))
    lines = []
    for path in dict.fromkeys((*first, *second)):
        if path not in first or path not in second:
            lines.append(f"{path}: only in the {'first' if path in first else 'second'}")
            continue
        a, b = (keras.ops.convert_to_numpy(values[path].value) for values in (first, second))
        if a.shape != b.shape:
            lines.append(f"{path}: {a.shape} and {b.shape}")
        elif not np.array_equal(a, b):
            lines.append(f"{path}: values differ by up to {np.abs(a - b).max():.3g}")
    return lines
