"""The formats that are read and written, and how a file's is recognised."""

from keras_vit.checkpoints.archives import ModelArchive
from keras_vit.checkpoints.formats.big_transfer import BIG_TRANSFER, BIG_TRANSFER_ROWS
from keras_vit.checkpoints.formats.google import BIG_VISION, BIG_VISION_ROWS, GOOGLE
from keras_vit.checkpoints.formats.huggingface import HUGGINGFACE
from keras_vit.checkpoints.formats.timm import TIMM, TIMM_ROWS
from keras_vit.checkpoints.weight_map import Format, Naming, Row
from keras_vit.core.arguments import check_choice

POSITIONS = "position_embedding/embedding"
# Of `position_embedding="learned2d"`, which no other project has.
OWN = ("position_embedding/rows", "position_embedding/columns")

# A model's own names: those on the right of all maps.
KERAS = Format(
    "keras",
    tuple(
        Row(target, target, "positions" if target == POSITIONS else "identity")
        for target in dict.fromkeys(
            target
            for row in (*BIG_VISION_ROWS, *TIMM_ROWS, *BIG_TRANSFER_ROWS)
            for target in (*row.targets, *OWN)
        )
    ),
    Naming.of,
)
# In the order in which a file is tried.
FORMATS = {f.name: f for f in (GOOGLE, BIG_VISION, BIG_TRANSFER, TIMM, HUGGINGFACE)}
# Formats whose files have a `config.json` next to them.
CONFIGURED = (TIMM.name, HUGGINGFACE.name)


def recognise(archive, format=None):
    """The format of an archive and its arrays under that format's names.

    Args:
        archive: an archive.
        format: a name of `FORMATS` or `"keras"`, or `None` to find out.

    Returns:
        A `Format` and a `Naming`.

    Raises:
        ValueError: if it is of no known or another format.
    """
    if format is not None:
        check_choice("format", format, (*FORMATS, "keras"))
    if isinstance(archive, ModelArchive):
        candidates = [KERAS] if format in (None, "keras") else []
    else:
        candidates = [f for f in FORMATS.values() if format in (None, f.name)]
    for candidate in candidates:
        naming = candidate.find(archive.shapes)
        if naming is not None:
            return candidate, naming
    names = list(archive.shapes)
    what = f"which holds {len(names)} arrays such as {', '.join(names[:4])}"
    kinds = "a Vision Transformer or a ResNet of a known layout"
    rule = kinds if format is None else f"of format {format!r}"
    raise ValueError(f"`path` must be {rule}. Received: path={str(archive.path)!r}, {what}")
