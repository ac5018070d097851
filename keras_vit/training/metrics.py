"""Metrics of an epoch that Keras lacks."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_vit")
class BalancedAccuracy(keras.metrics.Metric):
    """Mean of the accuracies of the classes, whatever the number of images of each.

    Classes without images are left out. Labels are class numbers `(batch,)` or soft labels
    `(batch, classes)`, whose greatest one counts; predictions are logits `(batch, classes)`.

    Args:
        num_classes: number of classes.
        name: name of the metric.

    Example:
    >>> from keras_vit.training.metrics import BalancedAccuracy
    >>> metric = BalancedAccuracy(num_classes=2)
    >>> metric.update_state([0, 0, 0, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(metric.result()), 4)
    0.8333
    """

    def __init__(self, num_classes, name="balanced_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_classes = num_classes
        self.right = self.add_variable((num_classes,), "zeros", name="right")
        self.total = self.add_variable((num_classes,), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        if len(y_true.shape) > 1:
            y_true = ops.argmax(y_true, axis=-1)
        y_true, predicted = (ops.cast(v, "int32") for v in (y_true, ops.argmax(y_pred, axis=-1)))
        classes = ops.one_hot(y_true, self.num_classes, dtype="float32")
        if sample_weight is not None:
            classes = classes * ops.cast(sample_weight, "float32")[:, None]
        is_right = ops.cast(predicted == y_true, "float32")
        self.total.assign_add(ops.sum(classes, axis=0))
        self.right.assign_add(ops.sum(classes * is_right[:, None], axis=0))

    def result(self):
        accuracies = self.right / ops.maximum(self.total, keras.config.epsilon())
        return ops.sum(accuracies) / ops.maximum(ops.sum(ops.cast(self.total > 0, "float32")), 1.0)

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}
