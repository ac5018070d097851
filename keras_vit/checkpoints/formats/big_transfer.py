"""The layout of Big Transfer (BiT): `.npz` files with the names of BiT's TensorFlow code."""

import re

from keras_vit.checkpoints.formats.big_vision import describe_resnet
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.weight_map import Naming, Row, layer, norm

UNIT_SOURCE, UNIT_TARGET = "resnet/block{s}/unit{u:02}", "stage_{s}_unit_{u}"
CONV = "standardized_conv2d/kernel"
GROUP_NORM = ("gamma", "beta")

BIG_TRANSFER_ROWS = (
    Row(f"resnet/root_block/{CONV}", "root_conv/kernel"),
    *(
        row
        for part, number in zip("abc", "123", strict=True)
        for row in (
            *norm(f"{UNIT_SOURCE}/{part}/group_norm/", f"{UNIT_TARGET}/norm_{number}", GROUP_NORM),
            Row(f"{UNIT_SOURCE}/{part}/{CONV}", f"{UNIT_TARGET}/conv_{number}/kernel"),
        )
    ),
    Row(f"{UNIT_SOURCE}/a/proj/{CONV}", f"{UNIT_TARGET}/conv_proj/kernel"),
    *norm("resnet/group_norm/", "norm", GROUP_NORM),
    # The head is a 1x1 convolution.
    *layer("resnet/head/conv2d/", "head", kernel="pointwise"),
)


def find_big_transfer(shapes):
    """Return the `Naming` of a BiT ResNet, or `None`; see `Format.find`."""
    # Some published files number the convolutions, as `bit_paper.py` of big_vision notes.
    naming = Naming.of(
        shapes, lambda name: re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)
    )
    root_conv = naming.shapes.get(BIG_TRANSFER_ROWS[0].source, ())
    return naming if len(root_conv) == 4 else None


BIG_TRANSFER = Format(
    "big_transfer",
    BIG_TRANSFER_ROWS,
    "`big_transfer`: BiT's `.npz`",
    ".npz",
    find_big_transfer,
    describe_resnet,
    models=("BiT",),
    has_resnets=True,
)
