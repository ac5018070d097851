"""The public names, for type checkers; written by `make docs`."""

from keras_vit.training.auto import auto_recipe as auto_recipe
from keras_vit.training.job import Run as Run
from keras_vit.training.job import train as train
from keras_vit.training.recipes import RECIPES as RECIPES
from keras_vit.training.recipes import Recipe as Recipe
from keras_vit.training.starting_model import make_model as make_model
from keras_vit.training.training_data import load_training_data as load_training_data
