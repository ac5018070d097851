"""Figures at the end of a run: its confusion matrix, and its worst mistakes."""

import importlib.util
import pathlib

import numpy as np

from keras_vit.checkpoints.runs import BEST_MODEL
from keras_vit.checkpoints.trained import load_trained
from keras_vit.data import load
from keras_vit.evaluation.classification import predictions
from keras_vit.evaluation.metrics import confusion_matrix
from keras_vit.inspection.figures.charts import draw_confusion
from keras_vit.inspection.figures.drawing import draw_mistakes
from keras_vit.training.distribution import is_first_process

MOST_MISTAKES = 24


def draw_run(workdir, data, **options):
    """Draw how the best model of a run classifies the images that it was validated on.

    Args:
        workdir: directory of the run; `confusion.png` is written there and, if an image is
            classified wrongly, `mistakes.png` with those of the greatest loss.
        data: name of the dataset.
        **options: as in `keras_vit.data.load`.

    Returns:
        A list of the paths; empty without matplotlib or a best model, or if images have several
        labels.
    """
    workdir = pathlib.Path(workdir)
    has_best = (workdir / BEST_MODEL).is_file() and is_first_process()
    if not has_best or not importlib.util.find_spec("matplotlib"):
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
