"""The public names, for type checkers."""

from .averaging import EvaluateAverages as EvaluateAverages
from .measuring import CheckFinite as CheckFinite
from .measuring import LogOptimizer as LogOptimizer
from .measuring import LogSpeed as LogSpeed
from .measuring import NotFiniteError as NotFiniteError
from .regular import MeasureRegularly as MeasureRegularly
from .saving import SaveModels as SaveModels
from .saving import SaveState as SaveState
from .stopping import StopEarly as StopEarly
