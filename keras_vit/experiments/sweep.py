"""Train with several seeds (`train_seeds`), or choose a learning rate among several (`sweep`)."""

import dataclasses
import logging
import os
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.checkpoints.named_models import absolute_model_name
from keras_vit.checkpoints.run_files import RUN_FILE
from keras_vit.core.arguments import check_integer
from keras_vit.core.run_dir import RunDir
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.experiments.grid import RESULTS, grid, read_results
from keras_vit.training import distribution, trainer
from keras_vit.training.callbacks import NotFiniteError, find_best
from keras_vit.training.recipe import Recipe, find_recipe
from keras_vit.training.trainer import Run

# Name of the setting in the rows of `train_seeds`.
_SETTING = "train"


@dataclasses.dataclass(frozen=True)
class SeedResults:
    """The best values of a metric in runs with different seeds.

    Args:
        metric: name of the metric, as in `best_of`; `None` without validation.
        values: dictionary from seeds to the best values of the metric; `None` without validation.
    """

    metric: str | None
    values: dict

    @property
    def mean(self):
        """The mean of the values, or `None`."""
        return statistics.mean(self.values.values()) if self.metric else None

    @property
    def std(self):
        """The standard deviation (n - 1) of the values; `None` for fewer than two."""
        values = [*self.values.values()] if self.metric else []
        return statistics.stdev(values) if len(values) > 1 else None


def train_seeds(
    recipe: Recipe | str,
    model: keras.Model | str | os.PathLike,
    data: str,
    workdir: str | os.PathLike,
    seeds: int = 3,
    *,
    train: Callable = trainer.train,
    resume: bool = False,
    on_run: Callable | None = None,
    **options: Any,
) -> SeedResults:
    """Train by a recipe with its seed and the following seeds, one run after the other.

    The runs are in the directories `seed-0`, `seed-1` and so on. `results.csv` has, per seed, the
    best value of the metric that selects the best model. Each run is the same as if it were trained
    alone with its seed.

    Args:
        recipe: a `Recipe`, or the name of a row of `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory; or of the same runs, to resume them.
        seeds: number of runs.
        train: function with the arguments of `keras_vit.training.train` that returns a `Run`.
        resume: whether to resume the runs in `workdir`. Finished runs are not repeated. The number
            of seeds may be larger than before; if it is smaller, `results.csv` keeps its rows.
        on_run: function that is called with the `Run` of each seed, or `None`.
        **options: further arguments of `train`.

    Returns:
        `SeedResults` of these seeds.

    Raises:
        ValueError: if `seeds` is not positive, the model is built, or `workdir` has other files; or
            as in `train`.

    Reference:
        Table 2 of the ViT paper (arXiv 2010.11929): mean and standard deviation over three runs.

    Example:
    >>> recipe = keras_vit.training.RECIPES["digits_finetune"]
    >>> recipe = dataclasses.replace(recipe, image_size=8, steps=8, warmup_steps=2)
    >>> keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, image_size=8
    ... ).save(tmp_path / "m.keras")
    >>> results = train_seeds(recipe, tmp_path / "m.keras", "digits", tmp_path / "runs", seeds=2)
    [1/2] train, seed 0 ...
    8/8 - ...
    >>> results.metric, list(results.values)
    ('val_accuracy', [0, 1])
    """
    recipe, workdir = find_recipe(recipe), pathlib.Path(workdir).expanduser().resolve()
    check_integer("seeds", seeds, 1)
    check_named(model)

    def train_seed(recipe, seed):
        recipe = dataclasses.replace(recipe, seed=seed)
        run = train(recipe, model, data, seed_directory(workdir, seed), resume=resume, **options)
        metric, value = best_of(run.history, run.recipe.monitor)
        if on_run is not None:
            on_run(run)
        return {} if metric is None else {metric: value}

    if keras.backend.backend() == "jax":
        # Only the first process uses the directory, so the processes are joined before.
        distribution.join_processes()
    run_seeds = range(recipe.seed, recipe.seed + seeds)
    if distribution.is_first_process():
        conditions = {"recipe": {**dataclasses.asdict(recipe), "seed": None}}
        # `repeat`, because the other processes cannot see which runs are recorded, and all must
        # train together. To resume a finished run returns its results.
        settings = {_SETTING: recipe}
        rows = grid(settings, run_seeds, train_seed, workdir, conditions, resume, repeat=True)
    else:
        rows = [{"seed": seed, **train_seed(recipe, seed)} for seed in run_seeds]
    metric = next((name for name in rows[0] if name not in ("setting", "seed")), None)
    return SeedResults(metric, {row["seed"]: row.get(metric) for row in rows})


def seed_directory(workdir, seed):
    """Return the directory of the run with a seed."""
    return pathlib.Path(workdir) / f"seed-{seed}"


def finished_runs(path):
    """Return the directories of finished runs of `train_seeds`; an empty list for other paths."""
    path = pathlib.Path(path).expanduser()
    rows = read_results(path / RESULTS)
    seeds = sorted(row["seed"] for row in rows if row["setting"] == _SETTING)
    return [seed_directory(path, seed) for seed in seeds]


def best_of(history, monitor=None):
    """Return `(metric, value)`: the metric that selects the best epoch, and its best value.

    Both are `None` without validation.

    Example:
    >>> best_of([{"val_accuracy": 0.5, "val_loss": 2.0}, {"val_accuracy": 0.4, "val_loss": 1.0}])
    ('val_accuracy', 0.5)
    """
    for metric in (monitor, "val_mean_average_precision", "val_accuracy", "val_loss"):
        if any(metric in metrics for metrics in history):
            return metric, history[find_best(history, monitor)].get(metric)
    return None, None


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

    To choose, a run per learning rate trains on the split `train`, in a directory next to `workdir`
    whose name ends with `-sweep`. The last run trains on `train+validation`, in `workdir`.

    Args:
        recipe: a `Recipe` with `learning_rates`, or the name of a row of `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory; or of the sweep to resume.
        cache: as in `keras_vit.training.train`; each of the two splits has a separate file.
        resume: whether to resume the sweep in `workdir`; if there is no sweep, a new one begins.
        **options: further arguments of `keras_vit.training.train`.

    Returns:
        `(run, accuracies)`: the last `Run`, and the dictionary of `choose_learning_rate`.

    Raises:
        ValueError: as in `choose_learning_rate` and `keras_vit.training.train`.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    workdir = pathlib.Path(workdir).expanduser().resolve()
    check_named(model)

    def train(recipe, workdir, split="train", validation="validation", **metadata):
        split_cache = cache if cache in (None, "memory") else f"{cache}-{split}"
        more = {"split": split, "validation": validation, "cache": split_cache, "resume": resume}
        return trainer.train(recipe, model, data, workdir, metadata=metadata, **more, **options)

    # The last run needs `workdir`: raise an error before the first run.
    RunDir(workdir, {}, resume, file=RUN_FILE).check()
    recipe, accuracies = choose_learning_rate(
        find_recipe(recipe),
        lambda recipe, workdir: train(recipe, workdir).history,
        sweep_directory(workdir),
        resume,
        _conditions(model, data, options),
    )
    # The last run has no images to validate on.
    recipe = dataclasses.replace(recipe, monitor=None, patience=None)
    recorded = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
    return train(recipe, workdir, "train+validation", None, sweep=recorded), accuracies


def check_named(model):
    """Raise `ValueError` for a built model, which the first of several runs would change."""
    if isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a name or a path, from which each run starts anew. "
            f"Received: the built model {model.name!r}"
        )


def sweep_shortly(recipe, model, data, workdir, **options):
    """Choose a learning rate in runs of a fifth of the steps, and return the recipe with that rate.

    The runs are in the same directories as for `sweep`, and are always resumed. `options` are
    arguments of `keras_vit.training.train`.
    """
    steps = max(recipe.steps // 5, 20)
    changes = {"steps": steps, "warmup_steps": max(steps // 10, 1), "patience": None}

    def train(recipe, workdir):
        return trainer.train(recipe, model, data, workdir, resume=True, **options).history

    short = dataclasses.replace(recipe, **changes)
    directory, conditions = sweep_directory(workdir), _conditions(model, data, options)
    chosen, accuracies = choose_learning_rate(short, train, directory, conditions=conditions)
    logging.getLogger("keras_vit").info("chosen of %s: %g", accuracies, chosen.learning_rate)
    return dataclasses.replace(recipe, learning_rate=chosen.learning_rate)


def _conditions(model, data, options):
    """Return a dictionary of what the accuracies of a sweep depend on, besides the recipe."""
    names = ("classes", "fraction", "exclude", "dtype", "teacher", "keep_head")
    conditions = {name: str(options.get(name)) for name in names}
    return {"model": absolute_model_name(model), "data": absolute_name(data), **conditions}


def sweep_directory(workdir):
    """Return the directory of the runs that choose a learning rate, next to `workdir`."""
    return pathlib.Path(f"{workdir}-sweep")


def choose_learning_rate(
    recipe: Recipe,
    train: Callable,
    workdir: str | os.PathLike,
    resume: bool = True,
    conditions: dict | None = None,
) -> tuple[Recipe, dict]:
    """Train with each of a recipe's learning rates, and choose the best.

    Args:
        recipe: a `Recipe` with `learning_rates`.
        train: function of a recipe and a directory that trains by the recipe in the directory, and
            returns a list of the metrics of each epoch.
        workdir: path of a new or empty directory; or of the same choice, to resume it.
        resume: whether `workdir` may contain a choice that was begun.
        conditions: dictionary of everything else that the accuracies depend on, such as the model.

    Returns:
        `(recipe, accuracies)`: the recipe with the learning rate that has the highest validation
        accuracy in the last epoch (or the highest `monitor` of the recipe), the smallest of equal
        ones; and a dictionary from learning rates to these accuracies, `None` for a rate that
        diverged.

    Raises:
        ValueError: if the recipe has no `learning_rates` or no loss of classes, or no accuracy is
            measured on validation images.
        NotFiniteError: if all rates diverge.

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
        with_rate = dataclasses.replace(recipe, learning_rate=rate)
        return train(with_rate, pathlib.Path(workdir) / str(rate))

    conditions = {**(conditions or {}), "recipe": dataclasses.asdict(recipe)}
    options = {"conditions": conditions, "monitor": recipe.monitor}
    best, accuracies = choose(rates, recipe.seed, train_with, workdir, resume=resume, **options)
    accuracies = {rates[name]: accuracy for name, accuracy in accuracies.items()}
    return dataclasses.replace(recipe, learning_rate=rates[best]), accuracies


def choose(settings, seed, train, workdir, conditions, *, resume=True, monitor=None):
    """Train with each setting, and choose one by its accuracy on validation images.

    Args:
        settings: dictionary from names to settings.
        seed: the seed of the runs, to be recorded.
        train: function of a setting that trains, and returns a list of the metrics of each epoch.
        workdir: path of the directory, as in `grid`.
        conditions: dictionary of everything else that the results depend on, as in `grid`.
        resume: whether `workdir` may contain a choice that was begun.
        monitor: name of the metric to choose by, unless it is a loss; the accuracy by default.

    Returns:
        `(name, accuracies)`: the name of the setting with the highest accuracy at the end of
        training, the first among equal ones; and a dictionary from names to accuracies, `None` for
        a setting that diverged.

    Raises:
        NotFiniteError: if all settings diverge.
    """

    def run(setting, seed):
        try:
            last = train(setting)[-1]
        except NotFiniteError as error:
            logging.getLogger("keras_vit").warning("%s", error)
            return {"accuracy": None}
        # No loss: small losses are best, and they depend on label smoothing and mixing.
        names = (monitor, "val_accuracy", "val_mean_average_precision")
        measured = [last[name] for name in names if name in last and "loss" not in name]
        if not measured:
            raise ValueError(
                "A choice needs an accuracy on validation images. "
                f"Received: the metrics {', '.join(last)}"
            )
        return {"accuracy": measured[0]}

    rows = grid(settings, (seed,), run, workdir, conditions, resume)
    accuracies = {row["setting"]: row["accuracy"] for row in rows}
    measured = {name: value for name, value in accuracies.items() if value is not None}
    if not measured:
        raise NotFiniteError(
            f"One of the values to choose from must not diverge. Received: {', '.join(settings)}"
        )
    return max(measured, key=measured.get), accuracies
