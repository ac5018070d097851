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
from keras_vit.experiments.grid import grid
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
    check_named(model)

    def train(recipe, workdir, split="train", validation="validation", **facts):
        of_split = cache if cache in (None, "memory") else f"{cache}-{split}"
        parts = {"split": split, "validation": validation, "cache": of_split, "resume": resume}
        return job.train(recipe, model, data, workdir, facts=facts, **parts, **options)

    # Before the first of many runs.
    RunDir(workdir, {}, resume, file=RUN_FILE).check()
    recipe, accuracies = choose_learning_rate(
        find_recipe(recipe),
        lambda recipe, workdir: train(recipe, workdir).history,
        sweep_directory(workdir),
        resume,
    )
    # The last run has no images to validate on.
    recipe = dataclasses.replace(recipe, monitor=None, patience=None)
    found = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
    return train(recipe, workdir, "train+validation", None, sweep=found), accuracies


def check_named(model):
    """Raise `ValueError` for a built model, from which a second run would not start anew."""
    if isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a name or a path, from which each run starts anew. "
            f"Received: the built model {model.name!r}"
        )


def sweep_shortly(recipe, model, data, workdir, **options):
    """Return a recipe with the best of its learning rates, in runs of a fifth of its steps.

    Arguments and errors are those of `sweep`; the runs are in the same directories.
    """
    steps = max(recipe.steps // 5, 20)
    changes = {"steps": steps, "warmup_steps": max(steps // 10, 1), "patience": None}

    def train(recipe, workdir):
        return job.train(recipe, model, data, workdir, resume=True, **options).history

    short = dataclasses.replace(recipe, **changes)
    chosen, accuracies = choose_learning_rate(short, train, sweep_directory(workdir))
    logging.getLogger("keras_vit").info("chosen of %s: %g", accuracies, chosen.learning_rate)
    return dataclasses.replace(recipe, learning_rate=chosen.learning_rate)


def sweep_directory(workdir):
    """Return the directory of the runs that choose, next to that of the last one."""
    return pathlib.Path(f"{workdir}-sweep")


def choose_learning_rate(
    recipe: Recipe, train: Callable, workdir: str | os.PathLike, resume: bool = True
) -> tuple[Recipe, dict]:
    """Train with each of a recipe's learning rates, and choose the best.

    Args:
        recipe: a `Recipe` with `learning_rates`.
        train: function of a recipe and a directory that trains there by the recipe, and returns
            the metrics of the epochs, as `fit` does.
        workdir: path of a new or empty directory; or of the same choice, to resume it.
        resume: whether `workdir` may have been begun in.

    Returns:
        `(recipe, accuracies)`: the recipe with the learning rate of the highest validation accuracy
        at the end of training, the smaller of two equal ones; and a dictionary from learning rates
        to these accuracies, `None` for a rate that diverged.

    Raises:
        ValueError: if the recipe has no choice, or does not train on classes; or all rates diverge.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if not recipe.learning_rates or not recipe.is_of_classes:
        raise ValueError(
            "A sweep needs `learning_rates` to choose from, and classes. Received: a recipe with "
            f"learning_rates={recipe.learning_rates}, loss={recipe.loss!r}"
        )
    rates = {f"learning rate {rate}": rate for rate in sorted({*recipe.learning_rates})}

    def train_with(rate):
        own = dataclasses.replace(recipe, learning_rate=rate)
        return train(own, pathlib.Path(workdir) / str(rate))

    options = {"facts": {"recipe": dataclasses.asdict(recipe)}, "monitor": recipe.monitor}
    best, accuracies = choose(rates, recipe.seed, train_with, workdir, resume=resume, **options)
    accuracies = {rates[name]: accuracy for name, accuracy in accuracies.items()}
    return dataclasses.replace(recipe, learning_rate=rates[best]), accuracies


def choose(settings, seed, train, workdir, facts, *, resume=True, monitor=None):
    """Train with each of some settings, and choose one on validation images.

    Args:
        settings: dictionary from names to settings.
        seed: the seed of the runs, to be recorded.
        train: function of a setting that trains, and returns the metrics of the epochs.
        workdir: path of the directory, as of a `grid`.
        facts: dictionary of what else the results depend on, as in `grid`.
        resume: whether `workdir` may have been begun in.
        monitor: name of the metric to choose by, unless it is a loss; the accuracy by default.

    Returns:
        `(name, accuracies)`: the name of the setting with the highest accuracy at the end of
        training, the first of equal ones; and a dictionary from names to accuracies, `None` for a
        setting that diverged.

    Raises:
        NotFiniteError: if all settings diverge.
    """

    def run(setting, seed):
        try:
            last = train(setting)[-1]
        except NotFiniteError as error:
            logging.getLogger("keras_vit").warning("%s", error)
            return {"accuracy": None}
        # A loss depends on label smoothing and mixing, and small ones are best.
        names = (monitor, "val_accuracy", "val_mean_average_precision")
        measured = [last[name] for name in names if name in last and "loss" not in name]
        if not measured:
            raise ValueError(
                "A choice needs an accuracy on validation images. "
                f"Received: the metrics {', '.join(last)}"
            )
        return {"accuracy": measured[0]}

    rows = grid(settings, (seed,), run, workdir, facts, resume)
    accuracies = {row["setting"]: row["accuracy"] for row in rows}
    measured = {name: value for name, value in accuracies.items() if value is not None}
    if not measured:
        raise NotFiniteError(
            f"One of the values to choose from must not diverge. Received: {', '.join(settings)}"
        )
    return max(measured, key=measured.get), accuracies
