"""The public names, for type checkers."""

from .classification import evaluate as evaluate
from .classification import predictions as predictions
from .compute import count_flops as count_flops
from .compute import count_parameters as count_parameters
from .extraction import extract_features as extract_features
from .fewshot import evaluate_fewshot as evaluate_fewshot
from .fewshot import fewshot_accuracies as fewshot_accuracies
from .memory import count_activations as count_activations
from .metrics import average_precision as average_precision
from .metrics import best_thresholds as best_thresholds
from .metrics import confusion_matrix as confusion_matrix
from .metrics import per_class_accuracy as per_class_accuracy
from .on_the_fly import FewshotAccuracy as FewshotAccuracy
from .segmentation.counts import evaluate_segmentation as evaluate_segmentation
from .segmentation.windows import segment as segment
