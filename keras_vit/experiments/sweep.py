"""Train with several seeds (`train_seeds`), or choose one of several learning rates (`sweep`)."""

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

# Name of the only setting in the `results.csv` of `train_seeds`.
_SETTING = "train"


@dataclasses.dataclass(frozen=True)
class SeedResults:
    """The best values of a metric in runs with different seeds.

    Args:
        metric: name of the metric, as in `best_of`; `None` without validation images.
        values: dictionary from seeds to the best values of the metric, or to `None`.
    """

    metric: str | None
    values: dict

    @property
    def mean(self):
        """The mean of the values; `None` without validation images."""
        return statistics.mean(self.values.values()) if self.metric else None

    @property
    def std(self):
        """The standard deviation (n - 1) of the values; `None` for fewer than two values."""
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
    """Train by a recipe several times, with its seed and the seeds after it.

    The runs are in the directories `seed-0`, `seed-1` and so on. `results.csv` has a row per seed,
    with the best value of the metric that selects the best model. Each run has the same results as
    a call of `keras_vit.training.train` with that seed.

    Args:
        recipe: a `Recipe`, or a name in `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory, or of the directory of the runs to resume.
        seeds: number of runs.
        train: function with the arguments of `keras_vit.training.train` that returns a `Run`.
        resume: whether to resume the runs in `workdir`. Finished runs are not repeated. The number
            of seeds may be larger than before. If it is smaller, the rows of other seeds stay in
            `results.csv`.
        on_run: function that is called with the `Run` of each seed, or `None`.
        **options: further arguments of `train`.

    Returns:
        The `SeedResults` of the `seeds` runs.

    Raises:
        ValueError: if `seeds` is not positive, `model` is a built model, or `workdir` has other
            files; or as in `train`.

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
        run = train(recipe, model, data, workdir / f"seed-{seed}", resume=resume, **options)
        metric, value = best_of(run.history, run.recipe.monitor)
        if on_run is not None:
            on_run(run)
        return {} if metric is None else {metric: value}

    if keras.backend.backend() == "jax":
        # Connect the processes now, because only the first one may write to `workdir`.
        distribution.join_processes()
    run_seeds = range(recipe.seed, recipe.seed + seeds)
    if distribution.is_first_process():
        conditions = {"recipe": {**dataclasses.asdict(recipe), "seed": None}}
        # All processes must train together, but the others cannot see which runs have a row. So
        # repeat all runs: resuming a finished run only returns its results.
        settings = {_SETTING: recipe}
        rows = grid(settings, run_seeds, train_seed, workdir, conditions, resume, repeat=True)
    else:
        rows = [{"seed": seed, **train_seed(recipe, seed)} for seed in run_seeds]
    metric = next((name for name in rows[0] if name not in ("setting", "seed")), None)
    return SeedResults(metric, {row["seed"]: row.get(metric) for row in rows})


def finished_runs(path):
    """Return the directories of the finished runs in a `workdir` of `train_seeds`.

    The list is empty for other paths.
    """
    path = pathlib.Path(path).expanduser()
    rows = read_results(path / RESULTS)
    seeds = sorted(row["seed"] for row in rows if row["setting"] == _SETTING)
    return [path / f"seed-{seed}" for seed in seeds]


def best_of(history, monitor=None):
    """Return `(metric, value)`: the metric that selects the best epoch, and its best value.

    Both are `None` without validation images.

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

    First, a run with each learning rate trains on the split `train`, in a directory next to
    `workdir` whose name ends with `-sweep`. Then the last run trains with the best learning rate on
    `train+validation`, in `workdir`.

    Args:
        recipe: a `Recipe` with `learning_rates`, or a name in `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory, or of the directory of the sweep to resume.
        cache: as in `keras_vit.training.train`. `train` and `train+validation` get separate files,
            whose names begin with this path.
        resume: whether to resume the sweep in `workdir`; if `workdir` has no sweep, a new sweep
            begins.
        **options: further arguments of `keras_vit.training.train`.

    Returns:
        `(run, accuracies)`: the last `Run`, and a dictionary from learning rates to validation
        accuracies, as in `choose_learning_rate`.

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

    # If `workdir` cannot be used, raise an error now, not before the last run.
    RunDir(workdir, {}, resume, file=RUN_FILE).check()
    recipe, accuracies = choose_learning_rate(
        find_recipe(recipe),
        lambda recipe, workdir: train(recipe, workdir).history,
        sweep_directory(workdir),
        resume,
        _conditions(model, data, options),
    )
    # The last run has no validation images.
    recipe = dataclasses.replace(recipe, monitor=None, patience=None)
    recorded = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
    return train(recipe, workdir, "train+validation", None, sweep=recorded), accuracies


def check_named(model):
    """Raise `ValueError` for a built model: the first of several runs would change its weights."""
    if isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a name or a path, so that each run starts from the same weights. "
            f"Received: the built model {model.name!r}"
        )


def sweep_shortly(recipe, model, data, workdir, **options):
    """Choose a learning rate in short runs, and return the recipe with that rate.

    Each run has a fifth of the recipe's steps. The runs are in the same directories as for `sweep`,
    and are always resumed. `options` are arguments of `keras_vit.training.train`.
    """
    steps = max(recipe.steps // 5, 20)

    def train(recipe, workdir):
        return trainer.train(recipe, model, data, workdir, resume=True, **options).history

    fast = dataclasses.replace(recipe, steps=steps, warmup_steps=max(steps // 10, 1), patience=None)
    directory, conditions = sweep_directory(workdir), _conditions(model, data, options)
    chosen, accuracies = choose_learning_rate(fast, train, directory, conditions=conditions)
    logging.getLogger("keras_vit").info("%g chosen of %s", chosen.learning_rate, accuracies)
    return dataclasses.replace(recipe, learning_rate=chosen.learning_rate)


def _conditions(model, data, options):
    """Return a dictionary of what the accuracies of a sweep depend on, except the recipe."""
    names = ("classes", "fraction", "exclude", "dtype", "teacher", "keep_head")
    conditions = {name: str(options.get(name)) for name in names}
    return {"model": absolute_model_name(model), "data": absolute_name(data), **conditions}


def sweep_directory(workdir):
    """Return the directory, next to `workdir`, of the runs that choose a learning rate."""
    return pathlib.Path(f"{workdir}-sweep")


def choose_learning_rate(
    recipe: Recipe,
    train: Callable,
    workdir: str | os.PathLike,
    resume: bool = True,
    conditions: dict | None = None,
) -> tuple[Recipe, dict]:
    """Train with each of a recipe's `learning_rates`, and choose the best rate.

    Args:
        recipe: a `Recipe` with `learning_rates`.
        train: function of a recipe and a directory that trains by the recipe in the directory, and
            returns a list of the metrics of each epoch.
        workdir: path of a new or empty directory, or of the directory of the same call, to resume.
        resume: whether `workdir` may already contain runs of the same call.
        conditions: dictionary of everything else that the accuracies depend on, such as the model.

    Returns:
        `(recipe, accuracies)`: the recipe with the chosen `learning_rate`; and a dictionary from
        learning rates to accuracies, `None` for a rate that diverged. The chosen rate has the
        highest validation accuracy (or the highest `monitor` of the recipe) in the last epoch; of
        rates with equal accuracies, the smallest is chosen.

    Raises:
        ValueError: if the recipe has no `learning_rates`, its loss is not for classes of images, or
            no validation accuracy is measured.
        NotFiniteError: if all rates diverge.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if not recipe.learning_rates or not recipe.for_classifier:
        raise ValueError(
            "A sweep needs `learning_rates`, and a loss for classes of images. Received: "
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
    """Train with each setting, and choose the setting with the best validation accuracy.

    Args:
        settings: dictionary from names to settings.
        seed: the seed of the runs, for `results.csv`.
        train: function of a setting that trains, and returns a list of the metrics of each epoch.
        workdir: path of the directory, as in `grid`.
        conditions: dictionary of everything else that the results depend on, as in `grid`.
        resume: whether `workdir` may already contain runs of the same call.
        monitor: name of the metric to choose by; the accuracy if it is `None` or a loss.

    Returns:
        `(name, accuracies)`: the name of the setting with the highest accuracy at the end of
        training (the first of settings with equal accuracies); and a dictionary from names to
        accuracies, `None` for a setting that diverged.

    Raises:
        NotFiniteError: if all settings diverge.
    """

    def run(setting, seed):
        try:
            last = train(setting)[-1]
        except NotFiniteError as error:
            logging.getLogger("keras_vit").warning("%s", error)
            return {"accuracy": None}
        # Do not choose by a loss: losses depend on label smoothing and mixing.
        names = (monitor, "val_accuracy", "val_mean_average_precision")
        measured = [last[name] for name in names if name in last and "loss" not in name]
        if not measured:
            raise ValueError(
                "To choose a setting, runs must measure an accuracy on validation images. "
                f"Received: the metrics {', '.join(last)}"
            )
        return {"accuracy": measured[0]}

    rows = grid(settings, (seed,), run, workdir, conditions, resume)
    accuracies = {row["setting"]: row["accuracy"] for row in rows}
    measured = {name: value for name, value in accuracies.items() if value is not None}
    if not measured:
        raise NotFiniteError(f"At least one run must not diverge. Received: {', '.join(settings)}")
    return max(measured, key=measured.get), accuracies
