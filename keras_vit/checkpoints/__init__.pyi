"""The public names, for type checkers; written by `make docs`."""

from keras_vit.checkpoints.catalog import Checkpoint as Checkpoint
from keras_vit.checkpoints.catalog import find_checkpoint as find_checkpoint
from keras_vit.checkpoints.catalog import list_checkpoints as list_checkpoints
from keras_vit.checkpoints.catalog.augreg import AugRegFile as AugRegFile
from keras_vit.checkpoints.catalog.augreg import parse_augreg as parse_augreg
from keras_vit.checkpoints.catalog.card import model_card as model_card
from keras_vit.checkpoints.catalog.push import push_to_hub as push_to_hub
from keras_vit.checkpoints.keras_hub import from_keras_hub as from_keras_hub
from keras_vit.checkpoints.keras_hub import to_keras_hub as to_keras_hub
from keras_vit.checkpoints.load import from_checkpoint as from_checkpoint
from keras_vit.checkpoints.load import load_checkpoint as load_checkpoint
from keras_vit.checkpoints.save import save_checkpoint as save_checkpoint
from keras_vit.checkpoints.summary import Summary as Summary
from keras_vit.checkpoints.summary import inspect_checkpoint as inspect_checkpoint
