"""The public names, for type checkers."""

from .measured import measured_tables as measured_tables
from .model_and_data import open_trained as open_trained
from .paper_tables import paper_table as paper_table
from .reported import find_reported as find_reported
from .study_run import study as study
from .sweep import choose_learning_rate as choose_learning_rate
from .sweep import sweep as sweep
from .sweep import train_seeds as train_seeds
from .vtab_run import vtab as vtab
