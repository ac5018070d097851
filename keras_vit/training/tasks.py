"""Tasks: for each loss of a recipe, the model, datasets, loss and metrics to train with."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.core.arguments import IGNORED, REGRESSION_LOSSES, SEGMENTATION, TARGETS
from keras_vit.core.text import check_class_names, name_some
from keras_vit.data.corruption import mask_patches
from keras_vit.data.processes import process
from keras_vit.data.sources.masks import count_pixels
from keras_vit.models.features import feature_extractor
from keras_vit.models.inference import for_inference
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.structure import check_classifier, is_segmenter, predicts_values, token_stride
from keras_vit.models.unused_tokens import without_unused_tokens
from keras_vit.training.distillation import check_teacher_settings, distill
from keras_vit.training.distribution import to_numpy
from keras_vit.training.losses import (
    BalancedAccuracy,
    PixelCrossEntropy,
    make_loss,
    masked_patch_loss,
)


@dataclasses.dataclass(frozen=True)
class Task:
    """The arguments of `model.compile` and `model.fit`, and metadata to record in `run.json`.

    `predictor` is a second model to save, or `None`. `measures_precision` is true if the mean
    average precision is measured, for multi-label images. `finish` is a function that changes a
    trained model in place before it is saved or returned, or `None`.
    """

    model: keras.Model
    train: object
    validation: object
    loss: object
    metrics: tuple[keras.metrics.Metric, ...]
    metadata: dict
    class_weights: dict | None = None
    predictor: keras.Model | None = None
    measures_precision: bool = False
    finish: Callable | None = None


def make_task(recipe, model, train, validation, teacher=None):
    """Build the task of a recipe for a model and the `Dataset`s of `load_training_data`.

    The task's model, which is compiled and trained, shares its weights with `model`. With a
    `teacher`, the task's model is a `Distiller`.
    """
    check_teacher_settings(recipe, teacher)
    builders = {SEGMENTATION: _segmentation_task, **dict.fromkeys(TARGETS, _masked_patch_task)}
    builders |= dict.fromkeys(REGRESSION_LOSSES, _regression_task)
    task = builders.get(recipe.loss, _classification_task)(recipe, model, train, validation)
    _check_monitor(recipe, task)
    if teacher is not None:
        distiller, metadata = distill(recipe, model, teacher, train.class_names)
        task = dataclasses.replace(task, model=distiller, metadata={**task.metadata, **metadata})
    return task


def _classification_task(recipe, model, train, validation):
    names, source = train.class_names, train.source
    is_multi_label = source.is_multi_label
    kinds = {
        "masks": (source.has_masks, SEGMENTATION),
        "values": (source.has_values, REGRESSION_LOSSES[0]),
        "several labels": (is_multi_label, "sigmoid"),
    }
    for content, (has_content, needed) in kinds.items():
        if has_content and recipe.loss != needed:
            raise ValueError(
                f"These images need `--loss {needed}`: they have {content}. "
                f"Received: loss={recipe.loss!r}"
            )
    check_class_names(names)
    num_classes = _check_head(model, train, validation)
    is_sparse = not (is_multi_label or train.one_hot)
    if is_multi_label or getattr(model, "thresholds", None) is not None:
        # `ChooseThresholds` replaces the thresholds after an epoch. A model for one label per image
        # has no thresholds.
        model.thresholds = (0.5,) * num_classes if is_multi_label else None
    model.predicts_values = False
    metrics = [] if is_multi_label else [_accuracy(is_sparse)]
    if metrics and (recipe.class_balance != "none" or recipe.monitor == "val_balanced_accuracy"):
        metrics.append(BalancedAccuracy(num_classes))
    weights = _class_weights(train) if recipe.class_balance == "weights" else None
    # The precision is not measured with several processes: their logits would have to be gathered.
    measures_precision = is_multi_label and validation is not None and process()[1] == 1
    loss, metadata = make_loss(recipe, is_sparse), {"class_names": names}
    if recipe.freeze:
        model, train, validation = _only_head(model, train, validation)
    return Task(
        without_unused_tokens(model),
        train,
        validation,
        loss,
        tuple(metrics),
        metadata,
        class_weights=weights,
        measures_precision=measures_precision,
    )


def _check_head(model, train, validation):
    """Return the number of outputs of a model, which must be that of the dataset's classes."""
    _check_same_classes(train, validation)
    num_outputs = check_classifier(model)
    if num_outputs != len(train.class_names):
        raise ValueError(
            f"`model` must have a head for the dataset's {len(train.class_names)} classes; "
            f"see `keras_vit.replace_head`. Received: a model with {num_outputs} outputs"
        )
    return num_outputs


def _regression_task(recipe, model, train, validation):
    """Train on values that are standardized by the mean and deviation of the training values.

    The learning rate of a recipe then fits values of any unit. `finish` folds the mean and the
    deviation into the head, so that the model predicts the values.
    """
    if not train.source.has_values:
        raise ValueError(
            f"The loss `{recipe.loss}` needs images with values: a `csv:PATH` whose columns have "
            "names and finite numbers. Received: images with the labels or classes "
            f"{name_some(train.class_names)}"
        )
    _check_head(model, train, validation)
    if "bias" not in {variable.name for variable in model.get_layer("head").weights}:
        raise ValueError(
            "`model` must have a head with a bias, to which the mean of the values is added. "
            f"Received: {model.name!r}, whose head has no bias"
        )
    values = train.source.labels().astype("float64")
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    if predicts_values(model):
        _scale_head(model, 1 / deviation, -mean / deviation)
    model.predicts_values, model.thresholds = False, None
    trained = model, *(data and data.standardized(mean, deviation) for data in (train, validation))
    if recipe.freeze:
        trained = _only_head(*trained)
    return Task(
        without_unused_tokens(trained[0]),
        *trained[1:],
        make_loss(recipe),
        (keras.metrics.R2Score(name="r2"),),
        {"class_names": train.class_names, "standardization": [mean.tolist(), deviation.tolist()]},
        finish=functools.partial(_predict_values, scale=deviation, offset=mean),
    )


def _predict_values(model, scale, offset):
    """Turn a model of standardized values into a model of the values, in place."""
    _scale_head(model, scale, offset)
    model.predicts_values = True


def _scale_head(model, scale, offset):
    """Multiply the outputs of a model by `scale` and add `offset`, in the weights of its head."""
    # With a distillation token, the head has two kernels and two biases, and returns the mean.
    for variable in model.get_layer("head").weights:
        values = to_numpy(variable).astype("float64") * scale
        variable.assign((values + offset if variable.name == "bias" else values).astype("float32"))


def _only_head(model, train, validation):
    """Return the head as a separate model, and datasets of features to train the head on."""
    extractor = feature_extractor(model)
    features = keras.Input(extractor.output_shape[1:], name="features")
    head = keras.Model(features, model.get_layer("head")(features), name="linear_probe")
    extract = for_inference(extractor).predict_on_batch
    datasets = [data and data.with_features(extract) for data in (train, validation)]
    return head, *datasets


def _class_weights(train):
    """Return the `class_weight` of `model.fit`. A class of mean size has the weight 1."""
    if train.source.is_multi_label:
        raise ValueError(
            "`class_balance` needs images of one class each. Received: images with several labels"
        )
    labels, counts = np.unique(train.source.labels(), return_counts=True)
    return dict(zip(labels.tolist(), (counts.mean() / counts).tolist(), strict=True))


def _check_monitor(recipe, task):
    """Raise an error if the epochs of a run do not have the metric that selects the best model."""
    names = []
    if task.validation is not None:
        names = ["val_loss", *(f"val_{metric.name}" for metric in task.metrics)]
        names += ["val_mean_average_precision"] * task.measures_precision
    if recipe.monitor not in (None, *names) or (recipe.patience and not names):
        raise ValueError(
            f"`monitor` and `patience` need a validation metric, one of {', '.join(names)}. "
            f"Received: monitor={recipe.monitor!r}, patience={recipe.patience}"
        )


def _accuracy(is_sparse):
    # With the string "accuracy", Keras would create the metric in the first step, and TensorFlow
    # would trace that step twice.
    if is_sparse:
        return keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    return keras.metrics.CategoricalAccuracy(name="accuracy")


def _check_same_classes(train, validation):
    if validation is not None and validation.class_names != train.class_names:
        raise ValueError(
            "The training and validation images must have the same classes. "
            f"Received: {train.class_names} and {validation.class_names}"
        )


def _segmentation_task(recipe, model, train, validation):
    names = train.class_names
    _check_same_classes(train, validation)
    can_segment = train.source.has_masks and is_segmenter(model)
    if not can_segment or model.output_shape[-1] != len(names):
        raise ValueError(
            "The loss `segmentation` needs a dataset with masks, `masks:DIR`, and a "
            f"`keras_vit.segmenter` for its {len(names)} classes. Received: "
            f"a model with the output shape {model.output_shape}, and images "
            f"{'with' if train.source.has_masks else 'without'} masks"
        )
    counts, share = count_pixels(train.source)
    is_weighted = recipe.class_balance == "weights"
    weights = _pixel_weights(counts) if is_weighted else [1.0] * len(names)
    # By default, `MeanIoU` counts pixels in int32 on JAX and torch. The count of an epoch of large
    # images would overflow.
    options = {"ignore_class": IGNORED, "sparse_y_pred": False, "dtype": "float32"}
    metrics = (keras.metrics.MeanIoU(len(names), "mean_iou", **options),)
    loss = PixelCrossEntropy(np.divide(weights, share))
    return Task(model, train, validation, loss, metrics, {"class_names": names})


def _pixel_weights(counts):
    """Return a weight per class from its number of pixels. A class of mean size has weight 1."""
    return np.where(counts > 0, counts.mean() / np.maximum(counts, 1), 0.0).tolist()


def _masked_patch_task(recipe, model, train, validation):
    predictor = masked_patch_predictor(model, recipe.loss)
    patch_size = token_stride(model)
    return Task(
        predictor,
        # Each process draws its own masks.
        mask_patches(train, patch_size, recipe.loss, seed=recipe.seed + 2**32 * process()[0]),
        None if validation is None else mask_patches(validation, patch_size, recipe.loss),
        masked_patch_loss(recipe.loss),
        # The prediction of pixels has no accuracy.
        () if recipe.loss == "pixels" else (_accuracy(is_sparse=True),),
        {},
        predictor=predictor,
    )
