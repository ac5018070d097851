"""The table of checkpoint layouts, and recognition of the layout of a file.

The table does not need Keras.
"""

import itertools
import re

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import MAX_NESTED
from keras_vit.checkpoints.formats.big_transfer import BIG_TRANSFER
from keras_vit.checkpoints.formats.big_vision import BIG_VISION
from keras_vit.checkpoints.formats.google import GOOGLE
from keras_vit.checkpoints.formats.keras import KERAS
from keras_vit.checkpoints.formats.keras_hub import KERAS_HUB
from keras_vit.checkpoints.formats.meta import META, META_DINOV3, META_DINOV3_UNTIED
from keras_vit.checkpoints.formats.open_clip import OPEN_CLIP, OPEN_CLIP_TIMM
from keras_vit.checkpoints.formats.timm import TIMM
from keras_vit.checkpoints.formats.timm_eva import TIMM_EVA
from keras_vit.checkpoints.formats.torchvision import TORCHVISION
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

# Fewer arrays are no model.
FEWEST_ARRAYS = 8
# To add a layout, define its `Format` in a new file of this folder, and add it to this table. The
# first layout whose `find` recognizes the arrays of a file is used.
FORMATS = {
    row.name: row
    for row in (
        *(GOOGLE, BIG_VISION, BIG_TRANSFER),
        *(TIMM, TIMM_EVA, META, META_DINOV3, META_DINOV3_UNTIED),
        *(HUGGINGFACE, HUGGINGFACE_TF, VIT_MAE, VIT_MSN, HUGGINGFACE_DEIT, VIT_MAE_TF, DEIT_TF),
        *(DINOV2, DINOV2_WITH_REGISTERS, DINOV3, CLIP, SIGLIP, SIGLIP2),
        *(OPEN_CLIP, OPEN_CLIP_TIMM, TORCHVISION),
        *(KERAS, KERAS_HUB),
    )
}


def written_formats():
    """Return the `Format`s that `save_checkpoint` writes, by name."""
    return {name: row for name, row in FORMATS.items() if row.is_written}


def recognize(archive, format=None, key=None):
    """Return the `Format` of an archive, and the `Naming` of its arrays.

    If no layout fits all names, the names with a common prefix are tried: training scripts store
    weights in dictionaries, such as `model_ema`, and wrap models, as in `module.`.

    Args:
        archive: the open archive.
        format: name of a layout or a family, or `None` to try all layouts.
        key: a prefix of names, without the last dot, that chooses one of several sets of weights.
    """
    if format is not None:
        check_choice("format", format, tuple(name for name, row in FORMATS.items() if row.find))
    candidates, found = _candidates(archive, format), {}
    for prefix, shapes in _parts(archive.shapes, key).items():
        # A layout may also fit the names in a part of the model, such as those after "vit.".
        if any(prefix.startswith(outer) for outer in found):
            continue
        namings = ((candidate, candidate.find(shapes)) for candidate in candidates)
        fitting = next((pair for pair in namings if pair[1] is not None), None)
        if fitting is not None:
            found[prefix] = fitting
    if len(found) > 1:
        keys = " or ".join(repr(prefix.removesuffix(".")) for prefix in found)
        raise ValueError(
            f"`key` must be {keys}: `path` holds the weights of several models. "
            f"Received: key={key!r}, path={str(archive.path)!r}"
        )
    if found:
        ((prefix, (candidate, naming)),) = found.items()
        others = [name for name in archive.shapes if not name.startswith(prefix)]
        if prefix:
            text = "%s: only the %d arrays whose names begin with %r are read"
            count = len(archive.shapes) - len(others)
            logger.info(text, archive.path, count, prefix)
        return candidate, naming.with_prefix(prefix, others)
    names, model_type = list(archive.shapes), archive.config.get("model_type")
    contents = f", which holds {len(names)} arrays such as {', '.join(names[:4]):.200}"
    if key is not None:
        contents += f"; key={key!r}"
    if model_type:
        contents += f"; its config.json has model_type={model_type!r}"
    kinds = "a Vision Transformer or a ResNet of a known layout"
    rule = kinds if format is None else f"of format {format!r}"
    raise path_error(archive.path, f"be {rule}", contents)


def _candidates(archive, format):
    """Return the `Format`s that a file may have, the likeliest first."""
    rows = [row for row in FORMATS.values() if row.find and format in (None, row.name, row.family)]
    openers = [row for row in rows if row.open and str(archive.path).endswith(row.suffix)]
    # Several layouts of transformers have the same arrays. Try those with this `model_type` first.
    model_type = archive.config.get("model_type")
    return openers or sorted(
        (row for row in rows if not row.open), key=lambda row: model_type not in row.model_types
    )


def _parts(shapes, key):
    """Return the shapes of the arrays after each prefix of names, the shortest prefix first.

    A prefix ends with a dot. Leave out prefixes with a number, such as those of blocks, and, if
    there is a `key`, prefixes that do not begin with it.
    """
    parts = {"": shapes} if key is None else {}
    for name, shape in shapes.items():
        for dot in itertools.islice(re.finditer(r"\.", name), MAX_NESTED):
            prefix = name[: dot.end()]
            is_of_block = re.search(r"(^|\.)\d+\.", prefix)
            if prefix.startswith(f"{key}.") if key is not None else not is_of_block:
                parts.setdefault(prefix, {})[name.removeprefix(prefix)] = shape
    large = {prefix: part for prefix, part in parts.items() if len(part) >= FEWEST_ARRAYS}
    return dict(sorted(large.items(), key=lambda item: len(item[0])))
