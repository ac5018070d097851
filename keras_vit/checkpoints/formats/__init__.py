"""The table of checkpoint layouts, and how the layout of a file is recognized.

The table itself needs neither Keras nor NumPy.
"""

from keras_vit.checkpoints.formats.big_transfer import BIG_TRANSFER
from keras_vit.checkpoints.formats.big_vision import BIG_VISION
from keras_vit.checkpoints.formats.google import GOOGLE
from keras_vit.checkpoints.formats.keras import KERAS
from keras_vit.checkpoints.formats.keras_hub import KERAS_HUB
from keras_vit.checkpoints.formats.timm.eva import TIMM_EVA
from keras_vit.checkpoints.formats.timm.vit import TIMM
from keras_vit.checkpoints.formats.transformers.clip import CLIP
from keras_vit.checkpoints.formats.transformers.deit import HUGGINGFACE_DEIT
from keras_vit.checkpoints.formats.transformers.dinov2 import DINOV2, DINOV2_WITH_REGISTERS
from keras_vit.checkpoints.formats.transformers.dinov3 import DINOV3
from keras_vit.checkpoints.formats.transformers.siglip import SIGLIP, SIGLIP2
from keras_vit.checkpoints.formats.transformers.tensorflow import HUGGINGFACE_TF, ONLY_VIT
from keras_vit.checkpoints.formats.transformers.vit import HUGGINGFACE, VIT_MAE, VIT_MSN
from keras_vit.core.arguments import check_choice, path_error

# To add a layout, add a file with its row to this folder, and the row here. A file is read by the
# first of them that finds its arrays in it.
FORMATS = {
    row.name: row
    for row in (
        *(GOOGLE, BIG_VISION, BIG_TRANSFER),
        *(TIMM, TIMM_EVA),
        *(HUGGINGFACE, HUGGINGFACE_TF, VIT_MAE, VIT_MSN, HUGGINGFACE_DEIT),
        *(DINOV2, DINOV2_WITH_REGISTERS, DINOV3, CLIP, SIGLIP, SIGLIP2),
        *(KERAS, KERAS_HUB),
    )
}


def written_formats():
    """Return the rows of the layouts that `save_checkpoint` writes, by name."""
    return {name: row for name, row in FORMATS.items() if row.is_written}


def opening_format(path):
    """Return the row that opens the file of a path itself, `None` for a file of `archives`."""
    rows = (row for row in FORMATS.values() if row.open and path.name.endswith(row.suffix))
    return next(rows, None)


def recognize(archive, format=None, opened_by=None):
    """Find the layout of an archive: return a `Format`, and the `Naming` of the arrays.

    `format` is `None` to try all layouts. `opened_by` is the row that opened the file, `None` if
    `archives` opened it.
    """
    if format is not None:
        check_choice("format", format, tuple(name for name, row in FORMATS.items() if row.find))
    candidates = [
        row
        for row in FORMATS.values()
        if row.find
        and format in (None, row.name, row.family)
        and opened_by is (row if row.open else None)
    ]
    # Several layouts of transformers have the same arrays.
    model_type = archive.config.get("model_type")
    candidates.sort(key=lambda row: model_type not in row.model_types)
    for candidate in candidates:
        naming = candidate.find(archive.shapes)
        if naming is not None:
            return candidate, naming
    names = list(archive.shapes)
    what = f"which holds {len(names)} arrays such as {', '.join(names[:4])}"
    prefixes = {name.partition(".")[0] for name in names}
    if len(names) > 1 == len(prefixes):
        what += f"; without {prefixes.pop() + '.'!r} before each name the layout may be known"
    if any("/tf_" in name or "layer_._" in name for name in names):
        what += f"; {ONLY_VIT}"
    if model_type:
        what += f"; its config.json says model_type={model_type!r}"
    kinds = "a Vision Transformer or a ResNet of a known layout"
    rule = kinds if format is None else f"of format {format!r}"
    raise path_error(archive.path, f"be {rule}", f", {what}")
