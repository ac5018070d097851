"""The public names, for type checkers; written by `make docs`."""

from keras_vit.experiments.studies.plan import Plan as Plan
from keras_vit.experiments.studies.plan import make_plan as make_plan
from keras_vit.experiments.studies.settings import STUDIES as STUDIES
from keras_vit.experiments.studies.settings import Setting as Setting
from keras_vit.experiments.studies.study import FIGURE as FIGURE
from keras_vit.experiments.studies.study import study as study
