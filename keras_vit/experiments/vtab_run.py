"""Fine-tune and evaluate a model on the tasks of VTAB-1k."""

import dataclasses
import logging
import os
import pathlib
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from keras_vit.checkpoints.trained import absolute_model_name, model_digest
from keras_vit.core.arguments import check_integer
from keras_vit.data.loading import find_source, load
from keras_vit.data.processes import process
from keras_vit.data.sources.paper import DATASETS
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.grid import RESULTS, grid, read_results
from keras_vit.experiments.reported import Reported
from keras_vit.experiments.study_run import data_digests
from keras_vit.experiments.sweep import choose_learning_rate, sweep_directory
from keras_vit.experiments.vtab_tables import GROUPS, TASKS, find_row, mean_accuracies
from keras_vit.training import distribution, job
from keras_vit.training.recipe import Recipe
from keras_vit.training.recipes import find_recipe
from keras_vit.training.run import STATES
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
    **options: Any,
) -> VtabResults:
    """Fine-tune a model on each task of VTAB-1k, 1,000 images each, and evaluate it.

    Each task is trained on its 1,000 images, and evaluated once on its test split. A recipe with
    several `learning_rates` first tries each on 800 of the images, and takes the one that is best
    on the 200 others. The same call resumes where it was stopped, in the middle of a task too.

    Args:
        model: name of a variant, a checkpoint, a `.keras` file or a run's directory, as in
            `keras_vit.training.train`.
        workdir: directory for `results.csv` and a run per task: a new one or, to resume, that of
            the same call.
        tasks: names of tasks (`"dtd"`, `"svhn"`, ...) or of groups (`"natural"`, `"specialized"`,
            `"structured"`); all 19 by default. Others can be added later in the same directory.
        recipe: a `Recipe`, or the name of one.
        **options: `datasets`, dictionary from names of tasks to datasets as in
            `keras_vit.data.load`, which have their images in the splits train, validation and test;
            other tasks are read by TensorFlow Datasets from `data_dir`. `dtype` and `strategy` as
            in `keras_vit.training.train`; VTAB runs in one process. `keep_models`, whether to keep
            the models and states of finished tasks: by default they are deleted, as those of 19
            tasks need much disk space. `compare`, name of the row of Table 2 to compare with, such
            as `"ViT_L16/jft300m/vtab"`; by default the row for the model, if it is a published file
            that the paper fine-tunes.

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
    [1/1] vtab/svhn, seed 0 ...
    vtab/svhn: training on 1,438 images, learning rate 0.03
    ...
    >>> list(results.means)
    ['natural', 'VTAB-1k']
    """
    recipe = find_recipe(recipe)
    return vtab_seeds(model, workdir, tasks, recipe, 1, **options)[recipe.seed]


def vtab_seeds(
    model: str | os.PathLike,
    workdir: str | os.PathLike,
    tasks: Sequence[str] = (),
    recipe: Recipe | str = "finetune_vtab",
    seeds: int = 3,
    *,
    datasets: dict | None = None,
    data_dir: str | os.PathLike | None = None,
    dtype: str | None = None,
    strategy: str = "auto",
    keep_models: bool = False,
    compare: str | None = None,
) -> dict:
    """Run VTAB-1k several times, with the recipe's seed and the following ones.

    The same call resumes where it was stopped; `vtab` in the same directory is the first seed.

    Args:
        model: as in `vtab`.
        workdir: path of a new directory, or of one in which the same was begun.
        tasks: names of tasks or of groups; all by default.
        recipe: a `Recipe`, or the name of one.
        seeds: number of seeds.
        datasets: as in `vtab`, and so are the other options.
        data_dir: directory of TensorFlow Datasets.
        dtype: dtype policy of the models.
        strategy: as in `keras_vit.training.train`.
        keep_models: whether to keep the models and states of finished tasks.
        compare: name of the row of Table 2 to compare with.

    Returns:
        A dictionary from seeds to `VtabResults`.

    Raises:
        ValueError: if `seeds` is not positive, or as `vtab`.

    Example:
        `keras-vit vtab MODEL --workdir runs/vtab --seeds 3`; a single task takes longer than an
        example here.
    """
    check_integer("seeds", seeds, 1)
    workdir, recipe = pathlib.Path(workdir).expanduser().resolve(), find_recipe(recipe)
    if len({*recipe.learning_rates}) == 1:
        # One learning rate is no choice.
        recipe = dataclasses.replace(
            recipe, learning_rate=recipe.learning_rates[0], learning_rates=()
        )
    own = {task: data for name, data in (datasets or {}).items() for task in find_tasks([name])}
    tasks, asked = find_tasks(tasks), range(recipe.seed, recipe.seed + seeds)
    runs = _Runs(absolute_model_name(model), workdir, recipe, own, data_dir, dtype)
    with distribution.strategy(strategy).scope():
        row = runs.check(tasks, asked, compare)

        def run(task, seed):
            if not keep_models:
                runs.clean_up()
            return {"accuracy": runs.train_and_test(task, seed)}

        grid({task: task for task in tasks}, asked, run, workdir, runs.facts())
        if not keep_models:
            runs.clean_up()
    return {
        seed: VtabResults(accuracies, dataclasses.replace(recipe, seed=seed), row)
        for seed, accuracies in accuracies_by_seed(workdir).items()
        if seed in asked
    }


def accuracies_by_seed(workdir):
    """Return the results in a directory: per seed a dictionary from tasks to accuracies."""
    found = {}
    for row in read_results(pathlib.Path(workdir) / RESULTS):
        found.setdefault(row["seed"], {})[row["setting"]] = row["accuracy"]
    return {
        seed: {task: of_seed[task] for task in TASKS if task in of_seed}
        for seed, of_seed in sorted(found.items())
    }


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The runs of the tasks; see `vtab`."""

    model: str
    workdir: pathlib.Path
    recipe: Recipe
    datasets: dict
    data_dir: pathlib.Path | None
    dtype: str | None

    def facts(self):
        """Return what the results depend on, besides the task and the seed."""
        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        datasets = sorted(self.datasets.items())
        facts = {"model": self.model, "dtype": self.dtype, "recipe": recipe, "datasets": datasets}
        facts |= model_digest(self.model)
        for data in self.datasets.values():
            facts |= data_digests(data, ("train", "validation", "test"))
        return facts

    def check(self, tasks, seeds, compare):
        """Return the reported row, after checking what could fail late."""
        if process()[1] > 1:
            raise ValueError(
                "VTAB must run in one process; start several with different `tasks`. "
                f"Received: {process()[1]} processes that train together"
            )
        if not self.recipe.is_of_classes:
            raise ValueError(f"`loss` must be one for classes. Received: loss={self.recipe.loss!r}")
        distribution.check_batch(self.recipe)
        # The runs of a sweep train on 800 images, which may be too few for the warm-up.
        self.recipe.epoch_lengths(800)
        done = accuracies_by_seed(self.workdir)
        missing = [t for t in tasks if any(t not in done.get(seed, ()) for seed in seeds)]
        model = None
        if missing or compare is not None:
            # A wrong model is found before datasets are downloaded.
            model = make_model(self.recipe, self.model, DATASETS[tasks[0]].num_classes, self.dtype)
        row = find_row(self.model, model, compare)
        check_data(missing, self.data_dir, self.datasets)
        return row

    def train_and_test(self, task, seed):
        """Return the accuracy on the test split, after training on all 1,000 images."""
        recipe, directory = dataclasses.replace(self.recipe, seed=seed), self._directory(task, seed)
        facts = {}
        if recipe.learning_rates:
            recipe, found = choose_learning_rate(
                recipe,
                lambda recipe, workdir: self._train(task, recipe, workdir, "train").history,
                sweep_directory(directory),
            )
            facts["sweep"] = {f"{rate:g}": accuracy for rate, accuracy in found.items()}
        run = self._train(task, recipe, directory, "train+validation", facts)
        batch_size = recipe.batch_size // recipe.accumulation_steps
        options = {"data_dir": self.data_dir, "upright": recipe.upright}
        data = self.datasets.get(task, task)
        test = load(data, "test", recipe.image_size, batch_size, **options)
        accuracy = evaluate(run.model, test)["accuracy"]
        if len(test.info.skipped):
            print(test.info.skipped)
        return accuracy

    def clean_up(self):
        """Delete the models and states of the runs that are recorded."""
        for seed, accuracies in accuracies_by_seed(self.workdir).items():
            for run in (self._directory(task, seed) for task in accuracies):
                for directory in (run, sweep_directory(run)):
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

    def _directory(self, task, seed):
        return self.workdir / f"{task.removeprefix('vtab/')}-seed-{seed}"


def find_tasks(names=()):
    """Return the tasks that names of tasks and groups stand for, in the paper's order; or all."""
    wanted = set()
    for name in names:
        tasks = GROUPS.get(name) or {name, f"vtab/{name}"}.intersection(TASKS)
        if not tasks:
            short = ", ".join(task.removeprefix("vtab/") for task in TASKS)
            raise ValueError(
                f"`tasks` must be among {short}, or groups: {', '.join(GROUPS)}. Received: {name!r}"
            )
        wanted.update(tasks)
    return tuple(task for task in TASKS if task in wanted or not names)


def check_data(tasks, data_dir=None, datasets=None):
    """Read the first and the last example of each split, and name all tasks that have none.

    TensorFlow Datasets downloads what is not on disk yet. `datasets` is as in `vtab`.
    """
    reasons = []
    for task in tasks:
        # Offline, TensorFlow Datasets tries for minutes to download each that is not there.
        logging.getLogger("keras_vit").info("looking at the data of %s", task)
        name = (datasets or {}).get(task, task)
        try:
            for split in DATASETS[task].splits:
                count = find_source(name, split, data_dir=data_dir).num_examples
                for shard in {(0, count), (count - 1, count)}:
                    source = find_source(name, split, data_dir=data_dir, shard=shard)
                    next(source.examples.as_numpy_iterator())
        except Exception as error:
            # TensorFlow's errors too, for files of a dataset that were not copied.
            reasons.append(f"{task} ({textwrap.shorten(str(error), 300) or type(error).__name__})")
    if reasons:
        raise ValueError(
            "The data of all tasks must be there before the first is trained on. Received: "
            f"{len(reasons)} of {len(tasks)} that cannot be loaded: {'; '.join(reasons)}"
        )
