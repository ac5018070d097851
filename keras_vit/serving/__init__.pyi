"""The public names, for type checkers; written by `make docs`."""

from keras_vit.serving.client import BadImageError as BadImageError
from keras_vit.serving.client import Client as Client
from keras_vit.serving.prediction.predictor import Predictor as Predictor
