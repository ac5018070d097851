"""The task of a recipe: classification of images or pixels, or masked patch prediction."""

import dataclasses
import logging

import keras
import numpy as np

from keras_vit.core.choices import IGNORED, SEGMENTATION, TARGETS
from keras_vit.core.class_names import check_class_names
from keras_vit.core.text import name_some
from keras_vit.data.masked_patches import mask_patches
from keras_vit.data.processes import process
from keras_vit.data.sources.masks import count_pixels
from keras_vit.models.features import feature_extractor
from keras_vit.models.inference import for_inference
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.parts import check_classifier, is_segmenter, token_stride
from keras_vit.training.distillation import check_teacher_settings, distill
from keras_vit.training.distribution import is_first_process
from keras_vit.training.losses import (
    PixelCrossEntropy,
    are_numbers,
    make_loss,
    masked_patch_loss,
)
from keras_vit.training.metrics import BalancedAccuracy
from keras_vit.training.runs.thresholds import measures_precision


@dataclasses.dataclass(frozen=True)
class Task:
    """The arguments of `model.compile` and `model.fit`, and facts to record in `run.json`.

    `predictor` is a model to save besides the one of the run, or `None`.
    """

    model: keras.Model
    train: object
    validation: object
    loss: object
    metrics: tuple[keras.metrics.Metric, ...]
    facts: dict
    class_weights: dict | None = None
    predictor: keras.Model | None = None


def make_task(recipe, model, data, teacher=None):
    """Make the task of a recipe for a model and `(train, validation)` of `load_training_data`.

    The model of the task is the one to compile and train; it shares its weights with `model`. With
    a `teacher`, it is a `Distiller`.
    """
    _check_batches(recipe, data[0])
    check_teacher_settings(recipe, teacher)
    make = {SEGMENTATION: _segmentation_task, **dict.fromkeys(TARGETS, _masked_patch_task)}
    task = make.get(recipe.loss, _classification_task)(recipe, model, *data)
    _check_monitor(recipe, task, model)
    if teacher is not None:
        distiller, found = distill(recipe, model, teacher, data[0].class_names)
        task = dataclasses.replace(task, model=distiller, facts={**task.facts, **found})
    return task


def _classification_task(recipe, model, train, validation):
    check_class_names(train.class_names)
    if train.source.has_masks:
        raise ValueError(
            f"Images with masks need `--loss {SEGMENTATION}`. Received: loss={recipe.loss!r}"
        )
    _check_same_classes(train, validation)
    num_classes = check_classifier(model)
    if num_classes != len(train.class_names):
        raise ValueError(
            f"`model` must have a head of the dataset's {len(train.class_names)} classes; "
            f"see `keras_vit.replace_head`. Received: a model of {num_classes} outputs"
        )
    _check_classes(train)
    has_several, thresholds = train.source.has_several_labels, getattr(model, "thresholds", None)
    if has_several and recipe.loss != "sigmoid":
        raise ValueError(
            f"Images of several labels need `--loss sigmoid`. Received: loss={recipe.loss!r}"
        )
    if thresholds is not None and not has_several:
        raise ValueError(
            "A model with `model.thresholds` needs images of several labels. "
            f"Received: images of one label each, and thresholds={thresholds!r:.80}"
        )
    if has_several:
        # Until `ChooseThresholds` has measured.
        model.thresholds = (0.5,) * num_classes
    loss = make_loss(recipe, train.element_spec[1])
    facts = {"class_names": train.class_names, "num_examples": train.num_examples}
    metrics = [] if has_several else [_accuracy(is_sparse=are_numbers(train.element_spec[1]))]
    if metrics and (recipe.class_balance != "none" or recipe.monitor == "val_balanced_accuracy"):
        metrics.append(BalancedAccuracy(num_classes))
    weights = _class_weights(train) if recipe.class_balance == "weights" else None
    if recipe.freeze:
        model, train, validation = _only_head(model, train, validation)
    return Task(model, train, validation, loss, tuple(metrics), facts, weights)


def _only_head(model, train, validation):
    """Return the head of a model as a model of its own, and datasets of features for it."""
    extractor = feature_extractor(model)
    features = keras.Input(extractor.output_shape[1:], name="features")
    head = keras.Model(features, model.get_layer("head")(features), name="linear_probe")
    extract = for_inference(extractor).predict_on_batch
    datasets = [data and data.with_features(extract) for data in (train, validation)]
    return head, *datasets


def _class_weights(train):
    """Return the weight of each class, as `model.fit` takes it: 1 for a class of mean size."""
    if train.source.has_several_labels:
        raise ValueError(
            "`class_balance` needs images of one class each. Received: images with several labels"
        )
    labels, counts = np.unique(train.source.labels(), return_counts=True)
    return dict(zip(labels.tolist(), (counts.mean() / counts).tolist(), strict=True))


def _check_monitor(recipe, task, model):
    """Check that the metrics of an epoch have the one that selects the best model."""
    if task.validation is None and (recipe.monitor or recipe.patience):
        raise ValueError(
            "`monitor` and `patience` need images to validate on. Received: "
            f"monitor={recipe.monitor!r}, patience={recipe.patience}, no validation split"
        )
    names = ["val_loss", *(f"val_{metric.name}" for metric in task.metrics)]
    if measures_precision(recipe, task, model):
        names.append("val_mean_average_precision")
    if recipe.monitor is not None and recipe.monitor not in names:
        # It is measured if it is asked for, of classes with one label.
        names += ["val_balanced_accuracy"] * ("val_accuracy" in names)
        raise ValueError(
            f"`monitor` must be one of the metrics of an epoch, {', '.join(dict.fromkeys(names))}. "
            f"Received: monitor={recipe.monitor!r}"
        )


def _accuracy(is_sparse):
    # Keras would make the metric "accuracy" in the first step, which TensorFlow then traces twice.
    if is_sparse:
        return keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    return keras.metrics.CategoricalAccuracy(name="accuracy")


def _check_batches(recipe, train):
    """Check that a training dataset has the recipe's batches and is repeated."""
    expected = recipe.batch_size // recipe.accumulation_steps // process()[1]
    # Without `repeat` the last batch may be smaller, and the spec has no batch size.
    size = train.element_spec[0].shape[0]
    if size != expected:
        received = f"batches of {size}" if size else "a dataset that is not repeated"
        raise ValueError(
            f"`data` must be repeated and have the recipe's batches of {expected} images; see "
            f"`load_training_data`. Received: {received}"
        )


def _check_classes(train):
    """Check that there are training images of two classes, and warn of classes without any."""
    if train.source.has_several_labels or not is_first_process():
        return
    labels = set(train.source.labels().tolist())
    empty = [name for i, name in enumerate(train.class_names) if i not in labels]
    if len(labels) < 2:
        raise ValueError(
            "The training images must be of at least two classes. Received: images of "
            f"{len(labels)} of the {len(train.class_names)} classes"
        )
    if empty:
        logging.getLogger("keras_vit").warning(
            "%d of the %d classes have no training image: %s",
            *(len(empty), len(train.class_names), name_some(empty, 20)),
        )


def _check_same_classes(train, validation):
    if validation is not None and validation.class_names != train.class_names:
        raise ValueError(
            "The training and validation images must have the same classes. "
            f"Received: {train.class_names} and {validation.class_names}"
        )


def _segmentation_task(recipe, model, train, validation):
    names = train.class_names
    _check_same_classes(train, validation)
    is_right = train.source.has_masks and is_segmenter(model)
    if not is_right or model.output_shape[-1] != len(names):
        raise ValueError(
            "The loss `segmentation` needs a dataset with masks, `masks:DIR`, and a "
            f"`keras_vit.segmenter` of its {len(names)} classes. Received: "
            f"a model of the output shape {model.output_shape}, and images "
            f"{'with' if train.source.has_masks else 'without'} masks"
        )
    counts, share = count_pixels(train.source)
    if not share:
        raise ValueError(
            "`data` must have masks with pixels of a class. Received: masks that cannot be read, "
            f"or whose pixels are all {IGNORED}, which stands for none"
        )
    is_weighted = recipe.class_balance == "weights"
    weights = _pixel_weights(counts, names) if is_weighted else [1.0] * len(names)
    # Keras counts in int32 on JAX and torch, which an epoch of large images overflows.
    options = {"ignore_class": IGNORED, "sparse_y_pred": False, "dtype": "float32"}
    metrics = (keras.metrics.MeanIoU(len(names), "mean_iou", **options),)
    facts = {"class_names": names, "num_examples": train.num_examples}
    loss = PixelCrossEntropy(np.divide(weights, share))
    return Task(model, train, validation, loss, metrics, facts)


def _pixel_weights(counts, names):
    """Return the weight of each class, by its number of pixels: 1 for a class of mean size."""
    if empty := [name for name, count in zip(names, counts, strict=True) if not count]:
        logging.getLogger("keras_vit").warning(
            "%d of the %d classes have no pixel in the training masks, and the weight 0: %s",
            *(len(empty), len(names), name_some(empty, 20)),
        )
    return np.where(counts > 0, counts.sum() / len(names) / np.maximum(counts, 1), 0.0).tolist()


def _masked_patch_task(recipe, model, train, validation):
    predictor = masked_patch_predictor(model, recipe.loss)
    patch_size = token_stride(model)
    return Task(
        predictor,
        # Each process draws its own masks.
        mask_patches(train, patch_size, recipe.loss, seed=recipe.seed + 2**32 * process()[0]),
        None if validation is None else mask_patches(validation, patch_size, recipe.loss),
        masked_patch_loss(recipe.loss),
        # Pixels have no accuracy.
        () if recipe.loss == "pixels" else (_accuracy(is_sparse=True),),
        {"num_examples": train.num_examples},
        predictor=predictor,
    )
