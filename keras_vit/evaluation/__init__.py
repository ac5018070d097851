"""Evaluation: accuracy, few-shot accuracy of features, and the costs of models."""

from keras_vit.core.lazy import make_lazy

# Keras and TensorFlow are imported when one of these is used.
__all__ = make_lazy(
    __name__,
    {
        "keras_vit.core.several_labels": ["average_precision", "best_thresholds"],
        "keras_vit.evaluation.classification": ["evaluate", "predictions"],
        "keras_vit.evaluation.compute": ["count_flops", "count_parameters"],
        "keras_vit.evaluation.extraction": ["extract_features"],
        "keras_vit.evaluation.fewshot": ["evaluate_fewshot", "fewshot_accuracies"],
        "keras_vit.evaluation.memory": ["count_activations"],
        "keras_vit.evaluation.metrics": ["confusion_matrix", "per_class_accuracy"],
        "keras_vit.evaluation.on_the_fly": ["FewshotAccuracy"],
        "keras_vit.evaluation.segmentation.counts": ["evaluate_segmentation"],
        "keras_vit.evaluation.segmentation.windows": ["segment"],
    },
)
