"""The layout of `.keras` files: the name of an array is the path of its variable."""

import dataclasses

from keras_vit.checkpoints.formats.big_transfer import BIG_TRANSFER_ROWS
from keras_vit.checkpoints.formats.big_vision import BIG_VISION_ROWS
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.formats.timm import TIMM_ROWS
from keras_vit.checkpoints.formats.transformers.clip import CLIP_ROWS
from keras_vit.checkpoints.formats.transformers.deit import DEIT_ROWS
from keras_vit.checkpoints.formats.transformers.dinov3 import DINOV3_ROWS
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row
from keras_vit.core.arguments import AXES
from keras_vit.models.options import options_from_config

# Variables of kinds of position embeddings that no other layout has.
OWN_VARIABLES = (
    *("position_embedding/rows", "position_embedding/columns"),
    *(f"position_embedding_{{i}}/{name}" for name in ("embedding", "rows", "columns")),
    "block_{i}/attention/relative_embedding",
)
_MAPS = (BIG_VISION_ROWS, BIG_TRANSFER_ROWS, TIMM_ROWS, CLIP_ROWS, DEIT_ROWS, DINOV3_ROWS)
_TARGETS = [target for rows in _MAPS for row in rows for target in row.targets]
# Each half of an axial block has the variables of a block.
_TARGETS += [
    target.replace("block_{i}/", f"block_{{i}}/{axis}/")
    for target in _TARGETS
    for axis in AXES
    if target.startswith("block_{i}/")
]
KERAS_ROWS = tuple(
    Row(target, target, "positions" if target == POSITIONS else "identity")
    for target in dict.fromkeys((*_TARGETS, *OWN_VARIABLES))
)


def _open(path):
    """Open a file as an archive whose `config` contains the options of the model."""
    from keras_vit.checkpoints.save import ModelArchive, at_stored_size
    from keras_vit.models.image_model import options_of
    from keras_vit.models.keras_files import load_unchecked

    # Load without checks of the arrays, because `CheckpointReader` checks them.
    model = at_stored_size(load_unchecked(path))
    policy = next((layer for layer in model.layers if layer.weights), model).dtype_policy.name
    options = options_of(model).replace(name=model.name, dtype=policy)
    return ModelArchive(model, path, dataclasses.asdict(options))


def _restore(checkpoint, model, has_new_head):
    """Freeze the layers that are frozen in the file."""
    from keras_vit.models.surgery import keep_frozen

    keep_frozen(checkpoint.archive.model, model, has_new_head)


KERAS = Format(
    "keras",
    KERAS_ROWS,
    suffix=".keras",
    find=Naming.of,
    describe=lambda shape_of, config, num_heads: options_from_config(config),
    open=_open,
    restore=_restore,
)
