"""Fine-tune and evaluate a model on the tasks of VTAB-1k."""

import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Sequence

from keras_vit.checkpoints.trained import absolute_model_name, model_digest
from keras_vit.data.loading import find_source, load
from keras_vit.data.processes import process
from keras_vit.data.sources.paper import DATASETS
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.digests import data_digests
from keras_vit.experiments.reported import Reported
from keras_vit.experiments.sweep import choose_learning_rate
from keras_vit.experiments.vtab_tables import find_row, mean_accuracies
from keras_vit.experiments.vtab_tasks import check_data, find_tasks, read_results, run_tasks
from keras_vit.training import distribution, job
from keras_vit.training.recipes import find_recipe
from keras_vit.training.recipes.recipe import CLASS_LOSSES, Recipe
from keras_vit.training.runs.run import STATES
from keras_vit.training.starting_model import make_model


@dataclasses.dataclass(frozen=True)
class VtabResults:
    """Accuracies on the tasks of VTAB-1k.

    Args:
        accuracies: dictionary from tasks to accuracies on the test split, from 0 to 1.
        recipe: the `Recipe` of the runs.
        reported: the `Reported` row to compare with, or `None`.
    """

    accuracies: dict
    recipe: Recipe
    reported: Reported | None = None

    @property
    def means(self):
        """The means by group and of all tasks, as in `mean_accuracies`."""
        return mean_accuracies(self.accuracies)


def vtab(
    model: str | os.PathLike,
    workdir: str | os.PathLike,
    tasks: Sequence[str] = (),
    recipe: Recipe | str = "finetune_vtab",
    *,
    datasets: dict | None = None,
    data_dir: str | os.PathLike | None = None,
    dtype: str | None = None,
    strategy: str = "auto",
    keep_models: bool = False,
    compare: str | os.PathLike | None = None,
) -> VtabResults:
    """Fine-tune a model on each task of VTAB-1k, 1,000 images each, and evaluate it.

    Each task is trained on its 1,000 images, and evaluated once on its test split. A recipe with
    several `learning_rates` first tries each on 800 of the images, and takes the one that is best
    on the 200 others. The same call resumes where it was stopped, in the middle of a task too.

    Args:
        model: name of a variant, a checkpoint, a `.keras` file or a run's directory, as in
            `keras_vit.training.train`.
        workdir: directory for `results.json` and a run per task: a new one or, to resume,
            that of the same call.
        tasks: names of tasks (`"dtd"`, `"svhn"`, ...) or of groups (`"natural"`, `"specialized"`,
            `"structured"`); all 19 by default. Others can be added later in the same directory.
        recipe: a `Recipe`, or the name of one.
        datasets: dictionary from names of tasks to datasets as in `keras_vit.data.load`, which have
            their images in the splits train, validation and test. Other tasks are read by
            TensorFlow Datasets.
        data_dir: directory of TensorFlow Datasets.
        dtype: dtype policy of the models, as in `keras_vit.training.train`.
        strategy: as in `keras_vit.training.train`. VTAB runs in one process.
        keep_models: whether to keep the models and states of finished tasks. By default they are
            deleted: those of 19 tasks need much disk space.
        compare: name of the row of Table 2 to compare with, such as `"ViT_L16/jft300m/vtab"`; by
            default the row for the model, if it is a published file that the paper fine-tunes.

    Returns:
        `VtabResults`, of all tasks that have a result in the directory.

    Raises:
        ValueError: if an argument is out of range, the data of a task cannot be loaded, or the
            directory has results of other settings.

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
    [1/1] vtab/svhn ...
    vtab/svhn: training on 1,438 images, learning rate 0.03
    ...
    >>> list(results.means)
    ['natural', 'VTAB-1k']
    """
    workdir = pathlib.Path(workdir).expanduser().resolve()
    recipe = _with_one_rate(find_recipe(recipe))
    given = (datasets or {}).items()
    datasets = {task: data for name, data in given for task in find_tasks([name])}
    runs = _Runs(
        absolute_model_name(model), workdir, recipe, datasets, data_dir, dtype, keep_models
    )
    tell = functools.partial(print, flush=True)
    with distribution.strategy(strategy).scope():
        tasks, settings, reported = _check(runs, tasks, compare)
        accuracies = run_tasks(tasks, runs.train_and_test, workdir, settings, tell, runs.clean_up)
    return VtabResults(accuracies, recipe, reported)


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The runs of the tasks; see `vtab`."""

    model: str
    workdir: pathlib.Path
    recipe: Recipe
    datasets: dict
    data_dir: pathlib.Path | None
    dtype: str | None
    keep_models: bool

    def train_and_test(self, task):
        """Return the accuracy on the test split, after training on all 1,000 images."""
        workdir, sweep_directory = self._directories(task)
        recipe, facts = self.recipe, {}
        if recipe.learning_rates:

            def train(recipe):
                directory = sweep_directory / f"{recipe.learning_rate:g}"
                return self._train(task, recipe, directory, "train").history

            recipe, found = choose_learning_rate(recipe, train)
            facts["sweep"] = {f"{rate:g}": accuracy for rate, accuracy in found.items()}
        run = self._train(task, recipe, workdir, "train+validation", facts)
        batch_size = recipe.batch_size // recipe.accumulation_steps
        data = self.datasets.get(task, task)
        options = {"data_dir": self.data_dir, "upright": recipe.upright}
        test = load(data, "test", recipe.image_size, batch_size, **options)
        accuracy = evaluate(run.model, test)["accuracy"]
        if len(test.info.skipped):
            print(test.info.skipped)
        return accuracy

    def clean_up(self, task):
        """Delete the models and states of a task."""
        if self.keep_models:
            return
        for directory in self._directories(task):
            for path in list(directory.rglob("*.keras")):
                path.unlink()
            for path in list(directory.rglob(STATES)):
                shutil.rmtree(path)

    def _train(self, task, recipe, workdir, split, facts=None):
        data = self.datasets.get(task, task)
        count = find_source(data, split, data_dir=self.data_dir).num_examples
        print(f"{task}: training on {count:,} images, learning rate {recipe.learning_rate:g}")
        return job.train(
            self._without_changes_of_labels(task, recipe),
            self.model,
            data,
            workdir,
            split=split,
            validation="validation" if split == "train" else None,
            data_dir=self.data_dir,
            dtype=self.dtype,
            # The caller has opened the scope of the strategy, for all tasks.
            strategy="none",
            resume=True,
            keep=1,
            facts=facts,
        )

    def _without_changes_of_labels(self, task, recipe):
        """Return a recipe without the crops and flips that make the labels of a task wrong.

        `train` removes them only for the paper's datasets, and `datasets` may replace the dataset.
        """
        row, changes = DATASETS[task], {}
        if task in self.datasets and not row.crop:
            changes = {"min_crop_area": None, "random_crop_from": None}
        if task in self.datasets and not row.flip:
            changes["flip"] = "never"
        return dataclasses.replace(recipe, **changes)

    def _directories(self, task):
        """Return the directory of a task's run, and that of its sweep over learning rates."""
        name = task.removeprefix("vtab/")
        return self.workdir / name, self.workdir / f"{name}-sweep"


def _check(runs, tasks, compare):
    """Return tasks, settings and reported row, after checking what could fail late."""
    if process()[1] > 1:
        raise ValueError(
            "VTAB must run in one process; start several with different `tasks`. "
            f"Received: {process()[1]} processes that train together"
        )
    recipe, tasks = runs.recipe, find_tasks(tasks)
    if not recipe.is_of_classes:
        raise ValueError(
            f"`loss` must be one of {CLASS_LOSSES}, for classes. Received: loss={recipe.loss!r}"
        )
    distribution.check_batch(recipe)
    # The runs of a sweep train on 800 images, which may be too few for the warm-up.
    recipe.epoch_lengths(800)
    settings = {"model": runs.model, "dtype": runs.dtype, **dataclasses.asdict(recipe)}
    settings |= model_digest(runs.model)
    for task, data in runs.datasets.items():
        splits = ("train", "validation", "test")
        settings |= {task: data, **data_digests(data, splits, prefix=f"{task}_")}
    missing = [task for task in tasks if task not in read_results(runs.workdir, settings)]
    model = None
    if missing or compare is not None:
        # A wrong model is found before datasets are downloaded.
        model = make_model(recipe, runs.model, DATASETS[tasks[0]].num_classes, runs.dtype)
    row = find_row(runs.model, model, compare)
    check_data(missing, runs.data_dir, runs.datasets)
    return tasks, settings, row


def _with_one_rate(recipe):
    """Return a recipe without a sweep if it would try a single learning rate."""
    if len({*recipe.learning_rates}) != 1:
        return recipe
    return dataclasses.replace(recipe, learning_rate=recipe.learning_rates[0], learning_rates=())
