"""The losses of the recipes, and the metric `BalancedAccuracy`."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import IGNORED, REGRESSION_LOSSES, TARGETS, check_choice
from keras_vit.training.recipe import Recipe


@keras.saving.register_keras_serializable("keras_vit")
def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    """Return the cross-entropy of one sigmoid per class, for soft labels `(batch, classes)`.

    The result has the shape `(batch,)` and is the sum over the classes. Keras's
    `BinaryCrossentropy` returns the mean over the classes.

    Reference:
        `sigmoid_xent` in big_vision's `utils.py`.
    """
    labels = ops.cast(labels, logits.dtype)
    return ops.sum(ops.binary_crossentropy(labels, logits, from_logits=True), axis=-1)


def make_loss(recipe: Recipe, is_sparse: bool = True) -> Any:
    """Return a recipe's loss for labels `(batch,)`, or soft labels or values `(batch, n)`."""
    if recipe.loss == "sigmoid":
        return sigmoid_cross_entropy
    if recipe.loss in REGRESSION_LOSSES:
        is_squared = recipe.loss == REGRESSION_LOSSES[0]
        return (keras.losses.MeanSquaredError if is_squared else keras.losses.MeanAbsoluteError)()
    if is_sparse:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=recipe.label_smoothing
    )


def masked_patch_loss(target: str = "mean_color") -> Any:
    """Return the loss of a masked patch predictor: the mean over the corrupted patches.

    The sample weights of `keras_vit.data.mask_patches` select the corrupted patches.

    Reference:
        Section B.1.2 of the ViT paper (arXiv 2010.11929).
    """
    check_choice("target", target, TARGETS)
    if target == "pixels":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@keras.saving.register_keras_serializable("keras_vit")
class PixelCrossEntropy(keras.losses.Loss):
    """Cross-entropy of the softmax, a mean over all pixels of a batch.

    Labels are masks `(batch, height, width)`, predictions are logits
    `(batch, height, width, num_classes)`. Pixels with the label 255 have no class and the weight 0.

    This loss divides by the number of pixels, also of those without a class. To compensate, a run
    divides `class_weights` by the share of its training pixels that have a class.
    `torch.nn.CrossEntropyLoss` divides by the sum of the weights in the batch instead. If a batch
    is divided (among devices, or by accumulation), the mean of that loss over the parts is not the
    loss of the batch.

    Args:
        class_weights: weight of each class; `None` for the weight 1.

    Raises:
        ValueError: if the number of weights differs from the number of classes.

    Example:
    >>> from keras_vit.training.losses import PixelCrossEntropy
    >>> masks, logits = np.array([[[0, 255]]]), np.zeros((1, 1, 2, 4))
    >>> round(float(PixelCrossEntropy()(masks, logits)), 4)
    0.6931
    """

    def __init__(
        self,
        class_weights: Sequence[float] | None = None,
        name: str = "pixel_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.class_weights = None if class_weights is None else list(map(float, class_weights))

    def call(self, y_true, y_pred):
        masks = ops.cast(y_true, "int32")
        is_known = ops.not_equal(masks, IGNORED)
        classes = ops.where(is_known, masks, 0)
        losses = ops.sparse_categorical_crossentropy(classes, y_pred, from_logits=True)
        weights = ops.cast(is_known, losses.dtype)
        if self.class_weights is not None:
            if len(self.class_weights) != y_pred.shape[-1]:
                raise ValueError(
                    f"`class_weights` must have a weight for each of the {y_pred.shape[-1]} "
                    f"classes. Received: {len(self.class_weights)} weights"
                )
            table = ops.convert_to_tensor(self.class_weights, losses.dtype)
            weights = weights * ops.take(table, classes)
        return losses * weights

    def get_config(self):
        return {**super().get_config(), "class_weights": self.class_weights}


@keras.saving.register_keras_serializable("keras_vit")
class BalancedAccuracy(keras.metrics.Metric):
    """Mean of the accuracies per class. Classes without images are left out.

    Labels are class numbers `(batch,)` or soft labels `(batch, classes)`. The class of a soft label
    is the class with the largest value. Predictions are logits `(batch, classes)`.

    Args:
        num_classes: number of classes.
        name: name of the metric.

    Example:
    >>> from keras_vit.training.losses import BalancedAccuracy
    >>> metric = BalancedAccuracy(num_classes=2)
    >>> metric.update_state([0, 0, 0, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(metric.result()), 4)
    0.8333
    """

    def __init__(self, num_classes: int, name: str = "balanced_accuracy", **kwargs: Any) -> None:
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
