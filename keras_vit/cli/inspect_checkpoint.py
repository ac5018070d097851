"""`keras-vit inspect-checkpoint`: describe a checkpoint file."""

import dataclasses
from typing import Annotated

import tyro

from keras_vit.cli.command import Command, ImageSize
from keras_vit.core.text import printable

# Greatest numbers of differences and of class names to print.
MAX_LISTED = 8
MAX_NAMED = 5


@dataclasses.dataclass
class InspectCheckpoint(Command):
    """Describe the contents of a checkpoint file, and its differences from another model.

    Example: keras-vit inspect-checkpoint ViT-B_16.npz --against ViT_B16

    Args:
        file: A file, directory, address or name, as in `keras-vit convert`.
        against: name of a variant, to compare the architecture; or another checkpoint, to compare
            the values of the weights.
        num_heads: number of attention heads; for a file of PyTorch without a config.json.
        key: the weights to read, if a file of PyTorch has several, such as model_ema.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    against: str | None = None
    image_size: ImageSize = None
    num_heads: int | None = None
    key: str | None = None

    def run(self):
        """Print one fact per line."""
        from keras_vit.checkpoints.summary import (
            compare_checkpoints,
            inspect_checkpoint,
            variant_differences,
        )
        from keras_vit.models import list_variants

        size = self.image_size
        summary = inspect_checkpoint(self.file, self.num_heads, size, key=self.key)
        for name, value in properties(summary):
            print(f"{name:<13} {printable(str(value))}")
        if names := summary.class_names:
            more = ", ..." if len(names) > MAX_NAMED else ""
            # Quote names with a comma.
            named = [repr(name) if "," in name else printable(name) for name in names[:MAX_NAMED]]
            print(f"{'class names':<13} {', '.join(named)}{more}")
        if self.against is None:
            return
        variants = {variant.name: variant for variant in list_variants()}
        if self.against in variants:
            lines = variant_differences(summary.options, variants[self.against])
        else:
            lines = compare_checkpoints(self.file, self.against, self.num_heads, size)
        more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
        print(f"\nagainst {self.against}: {len(lines) or 'no'} differences")
        for line in lines[:MAX_LISTED] + more:
            print(f"  {printable(line)}")


def properties(summary):
    """Yield the names and values to print for a `Summary`; skip options with default values."""
    from keras_vit.models import find_variant
    from keras_vit.models.options import changed_options, is_resnet

    options = summary.options
    variant = find_variant(summary.variant) if summary.variant else None
    changed = changed_options(options, variant)
    different = [f"{name}={value!r}" for name, (value, _) in changed.items()]
    builder = "resnet" if is_resnet(options) else "vision_transformer"
    head = f"{options.num_classes} classes" if options.num_classes else "none"
    yield "file", summary.path
    yield "format", summary.format
    yield "builder", summary.variant or builder
    yield "options", ", ".join(different) or "none"
    yield "image size", "x".join(map(str, options.image_size))
    states = {"zero": ", all zeros", "not finite": ", with NaN or infinity"}
    yield "head", head + states.get(summary.head_state, "")
    yield "stored as", ", ".join(summary.dtypes)
    yield "parameters", f"{summary.parameters:,}"
    if summary.ignored:
        yield "ignored", f"arrays: {len(summary.ignored)}, such as {summary.ignored[0]}"
