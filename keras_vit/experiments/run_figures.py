"""Figures of a finished run: confusion matrix and worst mistakes, or predicted patches."""

import importlib.util
import pathlib

import numpy as np

from keras_vit.checkpoints.named_models import load_trained
from keras_vit.checkpoints.run_files import BEST_MODEL, LAST_MODEL, PREDICTOR_MODEL
from keras_vit.core.arguments import TARGETS
from keras_vit.data import load, mask_patches
from keras_vit.evaluation.classification import predictions
from keras_vit.evaluation.metrics import confusion_matrix
from keras_vit.inspection.figures.charts import draw_confusion
from keras_vit.inspection.figures.drawing import draw_masked_patches, draw_mistakes
from keras_vit.models.image_model import image_spec_of
from keras_vit.models.keras_files import load_model
from keras_vit.models.structure import token_stride
from keras_vit.training.distribution import is_first_process
from keras_vit.training.recipe import CLASS_LOSSES

MOST_MISTAKES = 24


def draw_run(workdir, data, loss, **options):
    """Draw the predictions of a run's model on its validation images.

    For a classifier, `confusion.png` shows the confusion matrix of the best model. `mistakes.png`
    shows the misclassified images with the largest losses, if any image is misclassified. For
    masked patches, `masked_patches.png` shows predicted patches.

    Args:
        workdir: directory of the run, where the figures are written.
        data: name of the dataset.
        loss: the recipe's loss.
        **options: as in `keras_vit.data.load`.

    Returns:
        A list of the paths of the figures. It is empty without matplotlib, for other models, for
        multi-label images, and in other processes than the first.
    """
    workdir = pathlib.Path(workdir)
    if not is_first_process() or not importlib.util.find_spec("matplotlib"):
        return []
    if loss in TARGETS:
        return [_draw_masked_patches(workdir, data, loss, options)]
    if loss not in CLASS_LOSSES or not (workdir / BEST_MODEL).is_file():
        return []
    model = load_trained(workdir)
    options = {"image_spec": image_spec_of(model), **options}
    dataset = load(data, "validation", model.input_shape[1:3], 32, **options)
    if dataset.element_spec[1].shape.rank != 1:
        return []
    result = predictions(model, dataset)
    names = result.class_names
    paths = [workdir / "confusion.png"]
    draw_confusion(confusion_matrix(result.labels, result.predicted, len(names)), names, paths[0])
    worst = np.argsort(np.where(result.is_right, 0, -result.losses), kind="stable")[:MOST_MISTAKES]
    worst = worst[~result.is_right[worst]]
    if len(worst):
        paths.append(workdir / "mistakes.png")
        columns = (result.labels[worst], result.predicted[worst], result.probabilities[worst])
        draw_mistakes(_images_at(dataset, worst), *columns, names, paths[-1])
    return paths


def _images_at(dataset, indices):
    """Return the images of a dataset at the given indices, in the same order."""
    examples = enumerate(dataset.unbatch().as_numpy_iterator())
    images = {index: image for index, (image, *_) in examples if index in indices}
    return np.stack([images[index] for index in indices])


def _draw_masked_patches(workdir, data, loss, options):
    model, predictor = (load_model(workdir / name) for name in (LAST_MODEL, PREDICTOR_MODEL))
    images = load(data, "validation", model.input_shape[1:3], batch_size=8, **options)
    masked = mask_patches(images, token_stride(model), loss)
    picture = workdir / "masked_patches.png"
    draw_masked_patches(predictor, next(masked.as_numpy_iterator()), picture)
    return picture
