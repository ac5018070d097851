"""The public names, for type checkers."""

from .client import BadImageError as BadImageError
from .client import Client as Client
from .image_files import preprocess_files as preprocess_files
from .predictor import Predictor as Predictor
from .runner import load_runner as load_runner
