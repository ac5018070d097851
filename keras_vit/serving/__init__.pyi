"""The public names, for type checkers; written by `make docs`."""

from keras_vit.serving.client import BadImageError as BadImageError
from keras_vit.serving.client import Client as Client
from keras_vit.serving.loaded import preprocess_files as preprocess_files
from keras_vit.serving.prediction.predictor import Predictor as Predictor
from keras_vit.serving.runners import load_runner as load_runner
