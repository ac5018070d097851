"""The public names, for type checkers."""

from .client import BadImageError as BadImageError
from .client import Client as Client
from .loaded import preprocess_files as preprocess_files
from .prediction.predictor import Predictor as Predictor
from .runners import load_runner as load_runner
