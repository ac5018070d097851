"""The public names, for type checkers."""

from .classification import evaluate as evaluate
from .classification import predictions as predictions
from .costs import count_activations as count_activations
from .costs import count_flops as count_flops
from .costs import count_parameters as count_parameters
from .extraction import extract_features as extract_features
from .fewshot import FewshotAccuracy as FewshotAccuracy
from .fewshot import evaluate_fewshot as evaluate_fewshot
from .fewshot import fewshot_accuracies as fewshot_accuracies
from .metrics import average_precision as average_precision
from .metrics import best_thresholds as best_thresholds
from .metrics import confusion_matrix as confusion_matrix
from .metrics import per_class_accuracy as per_class_accuracy
from .segmentation import evaluate_segmentation as evaluate_segmentation
from .segmentation import segment as segment
