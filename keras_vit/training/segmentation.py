"""Training of segmenters: a loss over pixels, with weights of their classes."""

import keras
import numpy as np
from keras import ops

from keras_vit.data.images.masks import IGNORED, count_pixels
from keras_vit.models.dense.backbone import backbone
from keras_vit.models.dense.segmenter import segmenter


@keras.saving.register_keras_serializable("keras_vit")
class PixelCrossEntropy(keras.losses.Loss):
    """Cross-entropy of the softmax, a mean over the pixels of a batch weighted by their classes.

    Labels are masks `(batch, height, width)`, predictions logits
    `(batch, height, width, num_classes)`. Pixels of the value 255 are ignored.

    Args:
        class_weights: weight of each class; `None` for 1.

    Reference:
        `torch.nn.CrossEntropyLoss` with `weight` and `ignore_index`.

    Example:
    >>> from keras_vit.training.segmentation import PixelCrossEntropy
    >>> masks, logits = np.array([[[0, 255]]]), np.zeros((1, 1, 2, 4))
    >>> round(float(PixelCrossEntropy()(masks, logits)), 4)
    1.3863
    """

    def __init__(self, class_weights=None, name="pixel_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.class_weights = class_weights and [float(weight) for weight in class_weights]

    def call(self, y_true, y_pred):
        masks = ops.cast(y_true, "int32")
        is_known = ops.not_equal(masks, IGNORED)
        classes = ops.where(is_known, masks, 0)
        losses = ops.sparse_categorical_crossentropy(classes, y_pred, from_logits=True)
        weights = ops.cast(is_known, losses.dtype)
        if self.class_weights:
            table = ops.convert_to_tensor(self.class_weights, losses.dtype)
            weights = weights * ops.take(table, classes)
        # Keras's mean over all pixels becomes that of the weights.
        share = ops.mean(weights)
        return losses * weights / ops.where(share > 0, share, 1)

    def get_config(self):
        return {**super().get_config(), "class_weights": self.class_weights}


def make_segmenter(recipe, model, num_classes):
    """Return the segmenter of a recipe: its head on the normalized patches of a model."""
    names = [layer.name for layer in model.layers]
    last = "encoder_norm" if "encoder_norm" in names else None
    return segmenter(backbone(model, last and (last,), "blocks"), num_classes, recipe.segment_head)


def segmentation(recipe, model, train, validation):
    """Return the arguments of a `Task` for a segmenter and datasets of masks."""
    names = train.class_names
    if not train.source.has_masks or model.output_shape[-1] != len(names):
        raise ValueError(
            "The loss `segmentation` needs a dataset with masks, `masks:DIR`, and a "
            f"`keras_vit.segmenter` of its {len(names)} classes. Received: "
            f"a model of the output shape {model.output_shape}, and images "
            f"{'with' if train.source.has_masks else 'without'} masks"
        )
    weights = None
    if recipe.class_balance == "weights":
        counts = count_pixels(train.source)
        # 1 for a class of mean size; a class without pixels has no weight that matters.
        weights = (counts.sum() / len(names) / np.maximum(counts, 1)).tolist()
    options = {"ignore_class": IGNORED, "sparse_y_pred": False}
    metrics = (keras.metrics.MeanIoU(len(names), "mean_iou", **options),)
    facts = {"class_names": names, "num_examples": train.num_examples}
    return model, train, validation, PixelCrossEntropy(weights), metrics, facts
