"""The public names, for type checkers."""

from .measured import measured_tables as measured_tables
from .paper_tables import paper_table as paper_table
from .reported import comparison_rows as comparison_rows
from .reported import find_reported as find_reported
from .scaling_study import scaling as scaling
from .seeds import train_seeds as train_seeds
from .study_run import study as study
from .sweep import choose_learning_rate as choose_learning_rate
from .sweep import sweep as sweep
from .trained_model import open_trained as open_trained
from .vtab_run import vtab as vtab
from .vtab_run import vtab_seeds as vtab_seeds
