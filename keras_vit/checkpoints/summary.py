"""What a checkpoint file holds, without loading it."""

import dataclasses
import math

from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.known_files import described_options
from keras_vit.checkpoints.loading import warn_of_assumed
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.models import match_variant
from keras_vit.models.options import token_grid_of, variable_shapes


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a checkpoint file holds.

    Args:
        path: of the file.
        format: its layout, as `format=` calls it.
        variant: name of the builder of this architecture, or `None` if only `vision_transformer`
            or `resnet` builds it.
        options: of `vision_transformer` or `resnet`, at the file's image size.
        dtypes: names of the dtypes that the arrays are stored in.
        parameters: their number.
        head_state: `"zero"` if all weights of the head are, `"not finite"` if one of them is not,
            so that the file is not loaded; `None` for any other head and for none.
        ignored: arrays that are no part of the model, such as an optimizer's state.
    """

    path: str
    format: str
    variant: str | None
    options: dict
    dtypes: tuple[str, ...]
    parameters: int
    head_state: str | None
    ignored: tuple[str, ...]

    @property
    def zero_head(self):
        """Whether there is a head, and it is all zeros."""
        return self.head_state == "zero"

    @property
    def finite_head(self):
        """Whether the head has neither NaN nor infinity."""
        return self.head_state != "not finite"


def inspect_checkpoint(path, num_heads=None, image_size=None, format=None):
    """Tells what a checkpoint file holds, without loading it.

    Names and shapes of all arrays are checked against the model; of the values only the head's are
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
    >>> summary.format, summary.parameters, summary.options["num_heads"]
    ('google', 67594, 4)
    """
    file = find_file(path)
    with open_checkpoint(file, format) as checkpoint:
        options = described_options(file, checkpoint, num_heads, image_size)
        warn_of_assumed(checkpoint, options, num_heads)
        row = match_variant(options)
        return Summary(
            str(file),
            checkpoint.format.name,
            row.name if row else None,
            options,
            tuple(checkpoint.dtypes),
            _count_matching(checkpoint, options),
            checkpoint.head_state(),
            tuple(checkpoint.naming.ignored),
        )


def _count_matching(checkpoint, options):
    """The parameters of the model, if the file fits it."""
    shapes = variable_shapes(options)
    name = options.get("name", "of these options")
    checkpoint.match(name, shapes, token_grid_of(options), stored_size=options["image_size"])
    return sum(map(math.prod, shapes.values()))
