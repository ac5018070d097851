"""The public names, for type checkers."""

from .catalog import Checkpoint as Checkpoint
from .catalog import find_checkpoint as find_checkpoint
from .catalog import list_checkpoints as list_checkpoints
from .catalog.augreg import AugRegFile as AugRegFile
from .catalog.augreg import parse_augreg as parse_augreg
from .catalog.push import model_card as model_card
from .catalog.push import push_to_hub as push_to_hub
from .keras_hub_models import from_keras_hub as from_keras_hub
from .keras_hub_models import to_keras_hub as to_keras_hub
from .load import from_checkpoint as from_checkpoint
from .load import load_checkpoint as load_checkpoint
from .save import save_checkpoint as save_checkpoint
from .summary import Summary as Summary
from .summary import inspect_checkpoint as inspect_checkpoint
