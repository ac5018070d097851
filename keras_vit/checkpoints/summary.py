"""The contents of a checkpoint file, without loading it."""

import dataclasses
import math
import os

from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.load import describe, warn_of_assumed
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.models.options import Options
from keras_vit.models.variants import match_variant
from keras_vit.models.vit import variable_shapes


@dataclasses.dataclass(frozen=True)
class Summary:
    """The contents of a checkpoint file.

    Args:
        path: path of the file.
        format: name of its layout.
        variant: name of the builder of this architecture, or `None` if only `vision_transformer`
            or `resnet` builds it.
        options: options of `vision_transformer` or `resnet`, at the image size of the file.
        dtypes: names of the dtypes in which the arrays are stored.
        class_names: names of the classes that are recorded, or `None`.
        parameters: number of parameters.
        head_state: `"zero"` if all weights of the head are zero, `"not finite"` if one is NaN or
            infinite, so that the file cannot be loaded; otherwise `None`.
        ignored: arrays that are not part of the model, such as the state of an optimizer.
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
) -> Summary:
    """Describe the contents of a checkpoint file, without loading it.

    Names and shapes of all arrays are checked against the model. Only the values of the head are
    read.

    Args:
        path: as in `from_checkpoint`.
        num_heads: as in `from_checkpoint`.
        image_size: as in `from_checkpoint`.
        format: as in `from_checkpoint`.

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
    with open_checkpoint(file, format) as checkpoint:
        options = describe(checkpoint, num_heads, image_size)
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
