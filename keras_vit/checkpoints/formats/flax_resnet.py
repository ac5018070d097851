"""The ResNet of the hybrids under Flax's names; it is the whole model in big_vision's `bit.py`."""

from keras_vit.checkpoints.architecture import first_of, output_size
from keras_vit.checkpoints.weight_map import Row, norm
from keras_vit.models.options import ResNetOptions

# More than any published ResNet has.
MAX_STAGES, MAX_UNITS = 8, 256


def resnet_rows(group_norm):
    """Return the weight map of the ResNet; `group_norm` is the transform of its GroupNorms."""
    source, target = "block{s}/unit{u}", "stage_{s}_unit_{u}"
    parts = ("1", "2", "3", "_proj")
    return (
        Row("conv_root/kernel", "root_conv/kernel"),
        *norm("gn_root/", "root_norm", transform=group_norm),
        *(
            row
            for part in parts
            for row in (
                Row(f"{source}/conv{part}/kernel", f"{target}/conv_{part.strip('_')}/kernel"),
                *norm(
                    f"{source}/gn{part}/", f"{target}/norm_{part.strip('_')}", transform=group_norm
                ),
            )
        ),
    )


def describe_stages(shape_of):
    """Return the number of units per stage; incomplete units count too."""
    stages = [_count_units(shape_of, stage) for stage in range(1, MAX_STAGES + 1)]
    while stages and not stages[-1]:
        stages.pop()
    return tuple(stages)


def _count_units(shape_of, stage):
    parts = ("conv_1/kernel", "conv_2/kernel", "conv_3/kernel", "norm_1/gamma")
    units = range(1, MAX_UNITS + 1)
    present = [
        unit
        for unit in units
        if first_of(shape_of, *(f"stage_{stage}_unit_{unit}/{part}" for part in parts))
    ]
    return present[-1] if present else 0


def describe_resnet(shape_of, config, num_heads):
    """Return the options of `resnet` for a file of a ResNet; see `Format.describe`."""
    *_, channels, width = shape_of("root_conv/kernel")
    return ResNetOptions(
        stages=describe_stages(shape_of),
        width=width,
        num_classes=output_size(shape_of, "head") or 0,
        image_size=None,
        image_channels=channels,
        # Only version 1 has a norm after its first convolution.
        preactivation=shape_of("root_norm/gamma") is None,
    )
