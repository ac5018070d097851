"""The formats that are read and written, and how a file's is recognised."""

import logging

from keras_vit.checkpoints.archives import ModelArchive
from keras_vit.checkpoints.google import BIG_VISION, BIG_VISION_ROWS, GOOGLE
from keras_vit.checkpoints.huggingface import HUGGINGFACE
from keras_vit.checkpoints.timm import TIMM, TIMM_ROWS
from keras_vit.checkpoints.weight_map import Format, Naming, Row, Source
from keras_vit.layers.arguments import check_choice

logger = logging.getLogger("keras_vit")

POSITIONS = "position_embedding/embedding"


def _find_keras(shapes):
    naming = Naming({}, {}, [])
    for name, shape in shapes.items():
        naming.add(name, Source(name), shape)
    return naming


# A model's own names: those on the right of all maps.
KERAS = Format(
    "keras",
    tuple(
        Row(target, target, "positions" if target == POSITIONS else "identity")
        for target in dict.fromkeys(
            target for row in (*BIG_VISION_ROWS, *TIMM_ROWS) for target in row.targets
        )
    ),
    _find_keras,
    lambda shape_of, config, num_heads: config,
)
# In the order in which a file is tried.
FORMATS = {f.name: f for f in (GOOGLE, BIG_VISION, TIMM, HUGGINGFACE)}


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
    if any(name.startswith("resnet/") for name in names):
        what = "a BiT ResNet, which this version cannot build yet"
    else:
        listed = ", ".join(names[:4])
        what = f"which holds {len(names)} arrays such as {listed}"
    rule = "a Vision Transformer of a known layout" if format is None else f"of format {format!r}"
    raise ValueError(f"`path` must be {rule}. Received: path={str(archive.path)!r}, {what}")
