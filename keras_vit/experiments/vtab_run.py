"""`vtab` fine-tunes a model on the 19 tasks of VTAB-1k, and evaluates it on each."""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Sequence

from keras_vit.checkpoints.named_models import absolute_model_name, model_digest
from keras_vit.core.arguments import check_integer
from keras_vit.data.processes import process
from keras_vit.data.sources.named_datasets import DATASETS
from keras_vit.experiments.grid import RESULTS, grid, read_results
from keras_vit.experiments.reported import Reported
from keras_vit.experiments.study_run import Images
from keras_vit.experiments.sweep import choose_learning_rate, sweep_directory
from keras_vit.experiments.vtab_tables import GROUPS, TASKS, find_row
from keras_vit.training import distribution
from keras_vit.training.recipe import Recipe, find_recipe
from keras_vit.training.resumable_fit import STATES
from keras_vit.training.starting_model import make_model


@dataclasses.dataclass(frozen=True)
class VtabResults:
    """Accuracies on the tasks of VTAB-1k.

    Args:
        accuracies: dictionary from seeds to dictionaries from tasks to accuracies on the test
            split, from 0 to 1.
        recipe: the `Recipe` of the runs.
        reported: the `Reported` row to compare with, or `None`.
    """

    accuracies: dict
    recipe: Recipe
    reported: Reported | None = None


def vtab(
    model: str | os.PathLike,
    workdir: str | os.PathLike,
    tasks: Sequence[str] = (),
    recipe: Recipe | str = "finetune_vtab",
    seeds: int = 1,
    *,
    datasets: dict | None = None,
    data_dir: str | os.PathLike | None = None,
    dtype: str | None = None,
    strategy: str = "auto",
    keep_models: bool = False,
    compare: str | None = None,
) -> VtabResults:
    """Fine-tune a model on each task of VTAB-1k, and evaluate it.

    The model is trained on the 1,000 images of a task, and evaluated once on the test split of the
    task. If the recipe has several `learning_rates`, the model is first trained on 800 of the
    images with each rate, and the rate with the best accuracy on the other 200 images is chosen.
    After an interruption, the same call resumes, even in the middle of a task.

    Args:
        model: name of a variant, a checkpoint, a `.keras` file or a run's directory, as in
            `keras_vit.training.train`.
        workdir: directory for `results.csv` and a run per task and seed: a new directory or, to
            resume, the directory of the same call.
        tasks: names of tasks (`"dtd"`, `"svhn"`, ...) or of groups (`"natural"`, `"specialized"`,
            `"structured"`); all 19 by default. Tasks can be added later in the same directory.
        recipe: a `Recipe`, or the name of a recipe.
        seeds: number of runs of each task, with the recipe's seed and the seeds after it.
        datasets: dictionary from names of tasks to names of datasets, as in `keras_vit.data.load`,
            with the splits train, validation and test. Tasks that are not in the dictionary are
            loaded from TensorFlow Datasets.
        data_dir: directory of TensorFlow Datasets.
        dtype: dtype policy of the models.
        strategy: as in `keras_vit.training.train`, but for one process only.
        keep_models: whether to keep the models and states of finished tasks; by default they are
            deleted to save disk space.
        compare: name of the row of Table 2 to compare with, such as `"ViT_L16/jft300m/vtab"`. The
            default is the model's row, if the model is a published checkpoint that the paper
            fine-tunes.

    Returns:
        The `VtabResults` of these seeds, with all tasks that have a result in `workdir`, even if
        they are not in `tasks`.

    Raises:
        ValueError: if an argument is out of range, the data of a task cannot be loaded, or the
            directory has results of a call with other settings.

    Reference:
        The VTAB paper (arXiv 1910.04867); section 4.1 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> small = {"image_size": 16, "steps": 2, "warmup_steps": 1, "learning_rates": ()}
    >>> recipe = dataclasses.replace(find_recipe("digits_finetune"), **small)
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, image_size=16
    ... )
    >>> model.save(tmp_path / "m.keras")
    >>> digits = {"svhn": "digits"}
    >>> results = vtab(tmp_path / "m.keras", tmp_path / "vtab", ["svhn"], recipe, datasets=digits)
    [1/1] vtab/svhn, seed 0 ...
    vtab/svhn: training on 1,438 images, learning rate 0.03
    ...
    >>> list(results.accuracies[0])
    ['vtab/svhn']
    """
    check_integer("seeds", seeds, 1)
    if process()[1] > 1:
        raise ValueError(
            "VTAB must run in one process; start separate processes with different `tasks`. "
            f"Received: {process()[1]} processes that train together"
        )
    workdir, recipe = pathlib.Path(workdir).expanduser().resolve(), find_recipe(recipe)
    if len({*recipe.learning_rates}) == 1:
        # With one rate, no runs are needed to choose it.
        rate = recipe.learning_rates[0]
        recipe = dataclasses.replace(recipe, learning_rate=rate, learning_rates=())
    datasets = {task: data for n, data in (datasets or {}).items() for task in find_tasks([n])}
    tasks, run_seeds = find_tasks(tasks), range(recipe.seed, recipe.seed + seeds)
    runs = _Runs(absolute_model_name(model), workdir, recipe, datasets, data_dir, dtype)
    with distribution.strategy(strategy).scope():
        # Build a model first, to raise an error for a wrong model before datasets are downloaded.
        num_classes = DATASETS[tasks[0]].num_classes
        row = find_row(runs.model, make_model(recipe, runs.model, num_classes, dtype), compare)
        done = accuracies_by_seed(workdir)
        for task in tasks:
            if any(task not in done.get(seed, ()) for seed in run_seeds):
                # Load all datasets before the first run, to raise an error now if one is missing.
                runs.images(task).conditions(DATASETS[task].splits)

        def run(task, seed):
            if not keep_models:
                runs.clean_up()
            return {"accuracy": runs.train_and_test(task, seed)}

        grid({task: task for task in tasks}, run_seeds, run, workdir, runs.conditions())
        if not keep_models:
            runs.clean_up()
    accuracies = accuracies_by_seed(workdir)
    return VtabResults({seed: accuracies[seed] for seed in run_seeds}, recipe, row)


def accuracies_by_seed(workdir):
    """Return a dictionary from seeds to dictionaries from tasks to accuracies, in `workdir`."""
    rows = read_results(pathlib.Path(workdir) / RESULTS)
    accuracies = {seed: {} for seed in sorted({row["seed"] for row in rows})}
    for row in sorted(rows, key=lambda row: TASKS.index(row["setting"])):
        accuracies[row["seed"]][row["setting"]] = row["accuracy"]
    return accuracies


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The runs of a call of `vtab`, with its arguments."""

    model: str
    workdir: pathlib.Path
    recipe: Recipe
    datasets: dict
    data_dir: pathlib.Path | None
    dtype: str | None

    def images(self, task):
        """Return the `Images` of a task."""
        return Images(self.datasets.get(task, task), data_dir=self.data_dir)

    def conditions(self):
        """Return a dictionary of what the results depend on, except the task and the seed."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "recipe": {**dataclasses.asdict(self.recipe), "seed": None},
            "datasets": [(task, self.images(task).name) for task in sorted(self.datasets)],
            **{f"data {task}": self.images(task).conditions() for task in self.datasets},
            **model_digest(self.model),
        }

    def train_and_test(self, task, seed):
        """Train on all 1,000 images of a task, and return the accuracy on the test split."""
        images, directory = self.images(task), self._directory(task, seed)

        def train(recipe, workdir, split="train", validation="validation", **options):
            count = images.source(split).num_examples
            print(f"{task}: training on {count:,} images, learning rate {recipe.learning_rate:g}")
            options |= {"split": split, "validation": validation, "dtype": self.dtype, "keep": 1}
            # `Images.train` uses the strategy "none", because `vtab` is in the scope of a strategy.
            return images.train(recipe, self.model, workdir, **options)

        recipe, metadata = dataclasses.replace(_for_task(self.recipe, task), seed=seed), {}
        if recipe.learning_rates:
            recipe, accuracies = choose_learning_rate(
                recipe,
                lambda recipe, workdir: train(recipe, workdir).history,
                sweep_directory(directory),
            )
            metadata["sweep"] = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
        run = train(recipe, directory, "train+validation", None, metadata=metadata)
        return images.accuracy(run.model, recipe)

    def clean_up(self):
        """Delete the models and states of the runs that have a row in `results.csv`."""
        for row in read_results(self.workdir / RESULTS):
            run = self._directory(row["setting"], row["seed"])
            for directory in (run, sweep_directory(run)):
                for path in list(directory.rglob("*.keras")):
                    path.unlink()
                for path in list(directory.rglob(STATES)):
                    shutil.rmtree(path)

    def _directory(self, task, seed):
        return self.workdir / f"{task.removeprefix('vtab/')}-seed-{seed}"


def _for_task(recipe, task):
    """Remove crops and flips that would make the labels of a task wrong from a recipe."""
    changes = {} if DATASETS[task].crop else {"min_crop_area": None, "random_crop_from": None}
    if not DATASETS[task].flip:
        changes["flip"] = "never"
    return dataclasses.replace(recipe, **changes)


def find_tasks(names=()):
    """Return the tasks of names of tasks or groups, in the paper's order; by default all tasks."""
    selected = set()
    for name in names:
        tasks = GROUPS.get(name) or {name, f"vtab/{name}"}.intersection(TASKS)
        if not tasks:
            short = ", ".join(task.removeprefix("vtab/") for task in TASKS)
            raise ValueError(
                f"`tasks` must be among {short}, or groups: {', '.join(GROUPS)}. Received: {name!r}"
            )
        selected.update(tasks)
    return tuple(task for task in TASKS if task in selected or not names)
