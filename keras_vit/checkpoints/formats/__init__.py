"""The table of checkpoint layouts, and recognition of the layout of a file.

The table does not need Keras.
"""

import re

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.formats.big_transfer import BIG_TRANSFER
from keras_vit.checkpoints.formats.big_vision import BIG_VISION
from keras_vit.checkpoints.formats.google import GOOGLE
from keras_vit.checkpoints.formats.keras import KERAS
from keras_vit.checkpoints.formats.keras_hub import KERAS_HUB
from keras_vit.checkpoints.formats.meta import META, META_DINOV3, META_DINOV3_UNTIED
from keras_vit.checkpoints.formats.timm import TIMM
from keras_vit.checkpoints.formats.timm_eva import TIMM_EVA
from keras_vit.checkpoints.formats.transformers.clip import CLIP
from keras_vit.checkpoints.formats.transformers.deit import HUGGINGFACE_DEIT
from keras_vit.checkpoints.formats.transformers.dinov2 import DINOV2, DINOV2_WITH_REGISTERS
from keras_vit.checkpoints.formats.transformers.dinov3 import DINOV3
from keras_vit.checkpoints.formats.transformers.siglip import SIGLIP, SIGLIP2
from keras_vit.checkpoints.formats.transformers.tensorflow import (
    DEIT_TF,
    HUGGINGFACE_TF,
    VIT_MAE_TF,
)
from keras_vit.checkpoints.formats.transformers.vit import HUGGINGFACE, VIT_MAE, VIT_MSN
from keras_vit.core.arguments import check_choice, path_error

# To add a layout, define its `Format` in a new file of this folder, and add it to this table. The
# first layout whose `find` recognizes the arrays of a file is used.
FORMATS = {
    row.name: row
    for row in (
        *(GOOGLE, BIG_VISION, BIG_TRANSFER),
        *(TIMM, TIMM_EVA, META, META_DINOV3, META_DINOV3_UNTIED),
        *(HUGGINGFACE, HUGGINGFACE_TF, VIT_MAE, VIT_MSN, HUGGINGFACE_DEIT, VIT_MAE_TF, DEIT_TF),
        *(DINOV2, DINOV2_WITH_REGISTERS, DINOV3, CLIP, SIGLIP, SIGLIP2),
        *(KERAS, KERAS_HUB),
    )
}


def written_formats():
    """Return the `Format`s that `save_checkpoint` writes, by name."""
    return {name: row for name, row in FORMATS.items() if row.is_written}


def recognize(archive, format=None):
    """Return the `Format` of an archive, and the `Naming` of its arrays.

    `format` is the name of a layout or a family, or `None` to try all layouts. If no layout fits, a
    prefix that all names share is removed; the arrays may be from a part of a larger model.
    """
    if format is not None:
        check_choice("format", format, tuple(name for name, row in FORMATS.items() if row.find))
    rows = [row for row in FORMATS.values() if row.find and format in (None, row.name, row.family)]
    openers = [row for row in rows if row.open and str(archive.path).endswith(row.suffix)]
    # Several layouts of transformers have the same arrays. Try those with this `model_type` first.
    model_type = archive.config.get("model_type")
    candidates = openers or sorted(
        (row for row in rows if not row.open), key=lambda row: model_type not in row.model_types
    )
    names = list(archive.shapes)
    prefixes = [names[0][: dot.end()] for dot in re.finditer(r"\.", names[0])] if names else []
    for prefix in ("", *prefixes):
        if not all(name.startswith(prefix) for name in names):
            break
        shapes = {name.removeprefix(prefix): shape for name, shape in archive.shapes.items()}
        for candidate in candidates:
            naming = candidate.find(shapes)
            if naming is not None:
                if prefix:
                    text = "%s: the prefix %r, which all names have, is ignored"
                    logger.info(text, archive.path, prefix)
                return candidate, naming.with_prefix(prefix)
    contents = f", which holds {len(names)} arrays such as {', '.join(names[:4])}"
    if model_type:
        contents += f"; its config.json has model_type={model_type!r}"
    kinds = "a Vision Transformer or a ResNet of a known layout"
    rule = kinds if format is None else f"of format {format!r}"
    raise path_error(archive.path, f"be {rule}", contents)
