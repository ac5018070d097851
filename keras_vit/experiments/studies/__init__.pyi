"""The public names, for type checkers."""

from .plan import Plan as Plan
from .plan import make_plan as make_plan
from .settings import STUDIES as STUDIES
from .settings import Setting as Setting
from .study import FIGURE as FIGURE
from .study import study as study
