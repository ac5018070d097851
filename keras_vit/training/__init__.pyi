"""The public names, for type checkers."""

from . import callbacks as callbacks
from . import losses as losses
from . import optimizers as optimizers
from .auto import auto_recipe as auto_recipe
from .recipe import RECIPES as RECIPES
from .recipe import Recipe as Recipe
from .starting_model import make_model as make_model
from .trainer import Run as Run
from .trainer import load_training_data as load_training_data
from .trainer import train as train
