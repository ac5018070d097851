"""The public names, for type checkers; written by `make docs`."""

from keras_vit.training.averaging import EvaluateAverages as EvaluateAverages
from keras_vit.training.callbacks.measuring import CheckFinite as CheckFinite
from keras_vit.training.callbacks.measuring import LogOptimizer as LogOptimizer
from keras_vit.training.callbacks.measuring import LogSpeed as LogSpeed
from keras_vit.training.callbacks.measuring import NotFiniteError as NotFiniteError
from keras_vit.training.callbacks.regular import MeasureRegularly as MeasureRegularly
from keras_vit.training.callbacks.saving import SaveModels as SaveModels
from keras_vit.training.callbacks.saving import SaveState as SaveState
from keras_vit.training.callbacks.stopping import StopEarly as StopEarly
