"""The public names, for type checkers; written by `make docs`."""

from keras_vit.experiments.paper.contents import paper_table as paper_table
from keras_vit.experiments.paper.measured import measured_tables as measured_tables
from keras_vit.experiments.reported import comparison_rows as comparison_rows
from keras_vit.experiments.reported import find_reported as find_reported
from keras_vit.experiments.scaling_study import scaling as scaling
from keras_vit.experiments.seeds import train_seeds as train_seeds
from keras_vit.experiments.seeds import vtab_seeds as vtab_seeds
from keras_vit.experiments.studies import study as study
from keras_vit.experiments.sweep import choose_learning_rate as choose_learning_rate
from keras_vit.experiments.sweep import sweep as sweep
from keras_vit.experiments.trained_model import open_trained as open_trained
from keras_vit.experiments.vtab_run import vtab as vtab
