"""The choice of a learning rate on held-out images, as the paper makes it."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.checkpoints.runs import RUN_FILE
from keras_vit.core.run_dir import RunDir
from keras_vit.training import job
from keras_vit.training.callbacks import NotFiniteError
from keras_vit.training.job import Run
from keras_vit.training.recipe import Recipe
from keras_vit.training.recipes import find_recipe


def sweep(
    recipe: Recipe | str,
    model: str | os.PathLike,
    data: str,
    workdir: str | os.PathLike,
    *,
    cache: str | os.PathLike | None = None,
    resume: bool = False,
    **options: Any,
) -> tuple[Run, dict]:
    """Choose a learning rate on held-out images, then train with it on all images.

    The runs that choose train on the split `train`, in a directory next to `workdir` whose name
    ends with `-sweep`. The last run trains on `train+validation`, in `workdir`.

    Args:
        recipe: a `Recipe` with `learning_rates`, or the name of a row of `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory; or of the sweep to resume.
        cache: as in `keras_vit.training.train`; each of the two splits has its own file.
        resume: whether to resume the sweep in `workdir`; if there is none, it begins.
        **options: further arguments of `keras_vit.training.train`.

    Returns:
        `(run, accuracies)`: the last `Run`, and the dictionary of `choose_learning_rate`.

    Raises:
        ValueError: as `choose_learning_rate` and `keras_vit.training.train`.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    workdir = pathlib.Path(workdir).expanduser().resolve()
    if isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a name or a path, so that each learning rate starts from the same "
            f"weights. Received: the built model {model.name!r}"
        )

    def train(recipe, workdir, split="train", validation="validation", **more):
        return job.train(
            recipe,
            model,
            data,
            workdir,
            split=split,
            validation=validation,
            cache=cache if cache in (None, "memory") else f"{cache}-{split}",
            resume=resume,
            facts=more,
            **options,
        )

    # Before the first of many runs.
    RunDir(workdir, {}, resume, file=RUN_FILE).check()
    recipe, train_with_rate = find_recipe(recipe), _trainer_next_to(workdir, train)
    settings = {"recipe": dataclasses.asdict(recipe)}
    with RunDir(f"{workdir}-sweep", settings, resume).open():
        recipe, accuracies = choose_learning_rate(recipe, train_with_rate)
    # The last run has no images to validate on.
    recipe = dataclasses.replace(recipe, monitor=None, patience=None)
    found = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
    return train(recipe, workdir, "train+validation", None, sweep=found), accuracies


def sweep_shortly(recipe, model, data, workdir, **options):
    """Return a recipe with the best of its learning rates, in runs of a fifth of its steps.

    Arguments and errors are those of `sweep`; the runs are in the same directories.
    """
    steps = max(recipe.steps // 5, 20)
    changes = {"steps": steps, "warmup_steps": max(steps // 10, 1), "patience": None}

    def train(recipe, workdir):
        return job.train(recipe, model, data, workdir, resume=True, **options)

    short = dataclasses.replace(recipe, **changes)
    chosen, accuracies = choose_learning_rate(short, _trainer_next_to(workdir, train))
    logging.getLogger("keras_vit").info("chosen of %s: %g", accuracies, chosen.learning_rate)
    return dataclasses.replace(recipe, learning_rate=chosen.learning_rate)


def _trainer_next_to(workdir, train):
    """Return a function that trains by a recipe next to `workdir`, and returns the metrics."""

    def train_with_rate(recipe):
        name = f"{recipe.learning_rate:g}"
        length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs} epochs"
        log = logging.getLogger("keras_vit")
        log.info("training for %s with a learning rate of %s", length, name)
        return train(recipe, pathlib.Path(f"{workdir}-sweep") / name).history

    return train_with_rate


def choose_learning_rate(recipe: Recipe, train: Callable) -> tuple[Recipe, dict]:
    """Train with each of a recipe's learning rates, and choose the best.

    Args:
        recipe: a `Recipe` with `learning_rates`.
        train: function of a recipe that trains by it and returns the metrics of the epochs, as
            `fit` does.

    Returns:
        `(recipe, accuracies)`: the recipe with the learning rate of the highest validation accuracy
        at the end of training, the smaller of two equal ones; and a dictionary from learning rates
        to these accuracies, `None` for a rate that diverged.

    Raises:
        ValueError: if the recipe has no choice, or does not train on classes; or all rates diverge.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if not recipe.learning_rates:
        raise ValueError(
            "A sweep needs `learning_rates` to choose from. Received: a recipe with "
            f"learning_rate={recipe.learning_rate} alone"
        )
    if not recipe.is_of_classes:
        raise ValueError(
            f"A sweep is for classes, by their accuracy. Received: loss={recipe.loss!r}"
        )
    # Names of directories and results have 6 digits.
    if len({f"{rate:g}" for rate in recipe.learning_rates}) < len({*recipe.learning_rates}):
        raise ValueError(
            "`learning_rates` must differ in their first 6 digits. "
            f"Received: learning_rates={recipe.learning_rates}"
        )
    accuracies = {}
    for rate in sorted({*recipe.learning_rates}):
        try:
            history = train(dataclasses.replace(recipe, learning_rate=rate))
            last = history[-1]
            names = (recipe.monitor, "val_accuracy", "val_mean_average_precision")
            # A loss depends on label smoothing and mixing, and small ones are best.
            measured = [last[n] for n in names if n in last and "loss" not in n]
            if not measured:
                raise ValueError(
                    "A sweep needs an accuracy on validation images. "
                    f"Received: the metrics {', '.join(last)}"
                )
            accuracies[rate] = measured[0]
        except NotFiniteError as error:
            logging.getLogger("keras_vit").warning("%s", error)
            accuracies[rate] = None
    measured = {rate: value for rate, value in accuracies.items() if value is not None}
    if not measured:
        raise NotFiniteError(
            "One of the `learning_rates` must not diverge; try smaller ones. "
            f"Received: learning_rates={recipe.learning_rates}"
        )
    best = max(measured, key=measured.get)
    equal = [f"{rate:g}" for rate, value in measured.items() if value == measured[best]]
    if len(equal) > 1:
        log = logging.getLogger("keras_vit")
        log.info("the learning rates %s are equally good: the smallest is taken", ", ".join(equal))
    return dataclasses.replace(recipe, learning_rate=best), accuracies
