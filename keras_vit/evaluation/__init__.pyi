"""The public names, for type checkers; written by `make docs`."""

from keras_vit.core.several_labels import average_precision as average_precision
from keras_vit.core.several_labels import best_thresholds as best_thresholds
from keras_vit.evaluation.classification import evaluate as evaluate
from keras_vit.evaluation.classification import predictions as predictions
from keras_vit.evaluation.compute import count_flops as count_flops
from keras_vit.evaluation.compute import count_parameters as count_parameters
from keras_vit.evaluation.extraction import extract_features as extract_features
from keras_vit.evaluation.fewshot import evaluate_fewshot as evaluate_fewshot
from keras_vit.evaluation.fewshot import fewshot_accuracies as fewshot_accuracies
from keras_vit.evaluation.memory import count_activations as count_activations
from keras_vit.evaluation.metrics import confusion_matrix as confusion_matrix
from keras_vit.evaluation.metrics import per_class_accuracy as per_class_accuracy
from keras_vit.evaluation.on_the_fly import FewshotAccuracy as FewshotAccuracy
from keras_vit.evaluation.segmentation.counts import evaluate_segmentation as evaluate_segmentation
from keras_vit.evaluation.segmentation.windows import segment as segment
