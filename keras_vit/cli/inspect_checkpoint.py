"""`keras-vit inspect-checkpoint`."""

import dataclasses
from typing import Annotated

import tyro

from keras_vit.cli.arguments import Command, ImageSize
from keras_vit.core.text import printable

# Numbers of differences and of class names that are printed.
MAX_LISTED = 8
MAX_NAMED = 5


@dataclasses.dataclass
class InspectCheckpoint(Command):
    """Describe the contents of a checkpoint file, and its differences from a model.

    Example: keras-vit inspect-checkpoint ViT-B_16.npz --against ViT_B16

    Args:
        file: A file, directory, address or name, as in `keras-vit convert`.
        against: name of a builder, to compare the architecture; or another checkpoint, to compare
            values.
        num_heads: attention heads, for a .safetensors file without its config.json.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    against: str | None = None
    image_size: ImageSize = None
    num_heads: int | None = None

    def run(self):
        """Print one fact per line."""
        from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint
        from keras_vit.models import list_variants
        from keras_vit.models.options import changed_options
        from keras_vit.models.variants import size_differences

        size = self.image_size
        summary = inspect_checkpoint(self.file, self.num_heads, size)
        for name, value in facts(summary):
            print(f"{name:<13} {printable(str(value))}")
        if names := summary.class_names:
            more = ", ..." if len(names) > MAX_NAMED else ""
            # A name may have a comma.
            named = [repr(name) if "," in name else printable(name) for name in names[:MAX_NAMED]]
            print(f"{'class names':<13} {', '.join(named)}{more}")
        if self.against is None:
            return
        variants = {row.name: row for row in list_variants()}
        if self.against in variants:
            row = variants[self.against]
            different = size_differences(row, summary.options)
            if "family" not in different:
                different |= changed_options(summary.options, row)
            lines = [f"{name}: {ours}, not {its}" for name, (ours, its) in different.items()]
        else:
            model, other = (
                from_checkpoint(path, image_size=size, num_heads=self.num_heads)
                for path in (self.file, self.against)
            )
            lines = option_differences(model, other)
            lines += name_differences(
                summary, inspect_checkpoint(self.against, self.num_heads, size)
            )
            lines += value_differences(model, other)
        more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
        print(f"\nagainst {self.against}: {len(lines) or 'no'} differences")
        for line in lines[:MAX_LISTED] + more:
            print(f"  {printable(line)}")


def facts(summary):
    """Yield the names and values to print for a `Summary`, without options at their defaults."""
    from keras_vit.models import find_variant
    from keras_vit.models.options import changed_options, is_resnet

    options = summary.options
    row = find_variant(summary.variant) if summary.variant else None
    changed = changed_options(options, row)
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


def name_differences(summary, other):
    """Return one line per class whose recorded names differ."""
    # A different number of classes is a difference of options.
    pairs = enumerate(zip(summary.class_names or (), other.class_names or (), strict=False))
    return [f"class {index}: {a!r} and {b!r}" for index, (a, b) in pairs if a != b]


def option_differences(model, other):
    """Return one line per option that differs."""
    from keras_vit.models.options import differences
    from keras_vit.models.variants import size_differences

    ours, theirs = model.options, other.options
    different = size_differences(ours, theirs)
    if "family" not in different:
        different = differences(ours, theirs, [*ours.names(), *ours.names("size", "training")])
    return [f"{name}: {own!r} and {its!r}" for name, (own, its) in different.items()]


def value_differences(model, other):
    """Return one line per variable that only one model has, or whose shape or values differ."""
    import keras
    import numpy as np

    ours, theirs = ({v.path: v for v in m.weights} for m in (model, other))
    lines = []
    for path in dict.fromkeys((*ours, *theirs)):
        if path not in ours or path not in theirs:
            lines.append(f"{path}: only in the {'first' if path in ours else 'second'}")
            continue
        a, b = (keras.ops.convert_to_numpy(each[path].value) for each in (ours, theirs))
        if a.shape != b.shape:
            lines.append(f"{path}: {a.shape} and {b.shape}")
        elif not np.array_equal(a, b):
            lines.append(f"{path}: values differ by up to {np.abs(a - b).max():.3g}")
    return lines
