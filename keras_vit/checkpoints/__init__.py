"""Published checkpoints: their catalogue, reading and writing their files."""

from keras_vit.checkpoints.augreg import AugRegFile, parse_augreg
from keras_vit.checkpoints.catalog import Checkpoint, find_checkpoint, list_checkpoints
from keras_vit.checkpoints.loading import from_checkpoint, load_checkpoint
from keras_vit.checkpoints.saving import save_checkpoint

__all__ = [
    "AugRegFile",
    "Checkpoint",
    "find_checkpoint",
    "from_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "parse_augreg",
    "save_checkpoint",
]
