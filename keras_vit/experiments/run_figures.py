"""Figures at the end of a run: its confusion matrix and worst mistakes, or what it predicts."""

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
from keras_vit.models.keras_files import load_model
from keras_vit.models.structure import token_stride
from keras_vit.training.distribution import is_first_process
from keras_vit.training.recipe import CLASS_LOSSES

MOST_MISTAKES = 24


def draw_run(workdir, data, loss, **options):
    """Draw what the model of a run makes of the images that it was validated on.

    Args:
        workdir: directory of the run. A classifier's best model is drawn in `confusion.png` and, if
            an image is classified wrongly, in `mistakes.png` with those of the greatest loss; a
            predictor of masked patches in `masked_patches.png`.
        data: name of the dataset.
        loss: that of the recipe.
        **options: as in `keras_vit.data.load`.

    Returns:
        A list of the paths; empty without matplotlib or such a model, or if images have several
        labels.
    """
    workdir = pathlib.Path(workdir)
    if not is_first_process() or not importlib.util.find_spec("matplotlib"):
        return []
    if loss in TARGETS:
        return [_draw_masked_patches(workdir, data, loss, options)]
    if loss not in CLASS_LOSSES or not (workdir / BEST_MODEL).is_file():
        return []
    model = load_trained(workdir)
    dataset = load(data, "validation", model.input_shape[1:3], 32, **options)
    if dataset.element_spec[1].shape.rank != 1:
        return []
    found = predictions(model, dataset)
    names = found.class_names
    paths = [workdir / "confusion.png"]
    draw_confusion(confusion_matrix(found.labels, found.predicted, len(names)), names, paths[0])
    worst = np.argsort(np.where(found.is_right, 0, -found.losses), kind="stable")[:MOST_MISTAKES]
    worst = worst[~found.is_right[worst]]
    if len(worst):
        paths.append(workdir / "mistakes.png")
        columns = (found.labels[worst], found.predicted[worst], found.probabilities[worst])
        draw_mistakes(_images_at(dataset, worst), *columns, names, paths[-1])
    return paths


def _images_at(dataset, places):
    """Return the images at some places of a dataset, in the order of the places."""
    examples = enumerate(dataset.unbatch().as_numpy_iterator())
    found = {place: image for place, (image, *_) in examples if place in places}
    return np.stack([found[place] for place in places])


def _draw_masked_patches(workdir, data, loss, options):
    model, predictor = (load_model(workdir / name) for name in (LAST_MODEL, PREDICTOR_MODEL))
    images = load(data, "validation", model.input_shape[1:3], batch_size=8, **options)
    masked = mask_patches(images, token_stride(model), loss)
    picture = workdir / "masked_patches.png"
    draw_masked_patches(predictor, next(masked.as_numpy_iterator()), picture)
    return picture
