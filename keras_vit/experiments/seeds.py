"""The same training with several seeds: means and standard deviations over the runs."""

import dataclasses
import os
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.core.arguments import check_integer
from keras_vit.experiments.grid import RESULTS, grid, read_results
from keras_vit.experiments.sweep import check_named
from keras_vit.training import distribution, job
from keras_vit.training.callbacks import find_best
from keras_vit.training.recipe import Recipe
from keras_vit.training.recipes import find_recipe

# The setting of the rows of a grid of seeds alone.
_SETTING = "train"


@dataclasses.dataclass(frozen=True)
class SeedResults:
    """The best values of a metric in runs that differ in their seeds.

    Args:
        metric: name of the metric of an epoch, as `best_of` chooses it; `None` without validation.
        values: dictionary from seeds to the best values of the metric, `None` without validation.
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
    train: Callable = job.train,
    resume: bool = False,
    on_run: Callable | None = None,
    **options: Any,
) -> SeedResults:
    """Train by a recipe with its seed and the following ones, as one run after the other.

    The runs are in the directories `seed-0`, `seed-1` and so on, named by their seeds.
    `results.csv` has the best value of the metric that selects the best model per seed. Each run is
    the same as if it were trained alone with its seed.

    Args:
        recipe: a `Recipe`, or the name of a row of `RECIPES`.
        model: name or path of a model, as in `keras_vit.training.train`.
        data: name of a dataset.
        workdir: path of a new or empty directory; or of one in which the same runs were begun.
        seeds: number of runs.
        train: function with the arguments of `keras_vit.training.train` that returns a `Run`.
        resume: whether to resume the runs in `workdir`. Finished runs are not repeated, and the
            number of seeds may be greater than before. With a smaller one `results.csv` keeps all.
        on_run: function that is called with the `Run` of each seed, or `None`.
        **options: further arguments of `train`.

    Returns:
        `SeedResults` of the seeds that are asked for.

    Raises:
        ValueError: if `seeds` is not positive, the model is built, `workdir` has other files, or as
            `train`.

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
        own = dataclasses.replace(recipe, seed=seed)
        run = train(own, model, data, seed_directory(workdir, seed), resume=resume, **options)
        metric, value = best_of(run.history, run.recipe.monitor)
        if on_run is not None:
            on_run(run)
        return {} if metric is None else {metric: value}

    if keras.backend.backend() == "jax":
        # Only the first process looks at the directory.
        distribution.join_processes()
    asked = range(recipe.seed, recipe.seed + seeds)
    if distribution.is_first_process():
        facts = {"recipe": {**dataclasses.asdict(recipe), "seed": None}}
        # Processes that train together do not all see what is recorded: a finished run is resumed,
        # which returns what it has recorded itself.
        settings = {_SETTING: recipe}
        rows = grid(settings, asked, train_seed, workdir, facts, resume, repeat=True)
    else:
        rows = [{"seed": seed, **train_seed(recipe, seed)} for seed in asked]
    metric = next((name for name in rows[0] if name not in ("setting", "seed")), None)
    return SeedResults(metric, {row["seed"]: row.get(metric) for row in rows})


def seed_directory(workdir, seed):
    """Return the directory of the run with a seed."""
    return pathlib.Path(workdir) / f"seed-{seed}"


def finished_runs(path):
    """Return the directories of the finished runs of `train_seeds`; none for any other path."""
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
