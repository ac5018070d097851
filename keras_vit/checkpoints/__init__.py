"""Published checkpoints: their catalogue, reading and writing their files."""

from keras_vit.checkpoints.catalog import Checkpoint, find_checkpoint, list_checkpoints
from keras_vit.checkpoints.catalog.augreg import AugRegFile, parse_augreg
from keras_vit.checkpoints.formats.keras_hub import from_keras_hub, to_keras_hub
from keras_vit.checkpoints.loading import from_checkpoint, load_checkpoint
from keras_vit.checkpoints.saving import save_checkpoint
from keras_vit.checkpoints.summary import Summary, inspect_checkpoint

__all__ = [
    "AugRegFile",
    "Checkpoint",
    "Summary",
    "find_checkpoint",
    "from_checkpoint",
    "from_keras_hub",
    "inspect_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "parse_augreg",
    "save_checkpoint",
    "to_keras_hub",
]
