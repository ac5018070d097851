"""`keras-vit vtab`."""

import dataclasses
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.training.recipes import RECIPES
from keras_vit.training.recipes.recipe import Recipe

RECIPE = "finetune_vtab"
# What does not change what a recipe computes, but for rounding and chance.
FREE = ("seed", "accumulation_steps", "remat")


@dataclasses.dataclass
class Vtab:
    """Fine-tune a model on each task of VTAB-1k, 1,000 images each, and print the mean accuracies.

    A command that was stopped goes on when it is given again.

    Example: keras-vit vtab ViT_L16/imagenet21k --workdir runs/vtab --accumulation-steps 16
    """

    model: Annotated[str, tyro.conf.Positional]
    """As in `keras-vit train`."""
    workdir: pathlib.Path
    """Directory for the results and a run for each task; new, or of the same command."""
    tasks: tuple[str, ...] = ()
    """Tasks (`dtd`, `svhn`, ...) or groups (`natural`, `specialized`, `structured`); all by
    default. Others can be added later in the same directory."""
    recipe: Recipe = RECIPES[RECIPE]
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] | None = None
    """As in `keras-vit train`."""
    strategy: str = "auto"
    """As in `keras-vit train`, in one process."""
    keep_models: bool = False
    """Keep the models of tasks that are done, and the states to resume from."""
    compare: str | None = None
    """Row of Table 2 of the paper to stand beside, such as ViT_L16/jft300m/vtab. Where the model is
    a published file that the paper fine-tunes, it is found."""
    markdown: bool = False
    """Print the table as Markdown."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Trains on the tasks that are not done, and prints the table."""
        from keras_vit.cli.tables import markdown_table, plain_table
        from keras_vit.experiments.vtab import run_tasks
        from keras_vit.experiments.vtab_tables import table_columns, table_rows
        from keras_vit.training.distribution import strategy

        self.workdir = self.workdir.expanduser().resolve()
        self.recipe = with_one_rate(self.recipe)
        with strategy(self.strategy).scope():
            tasks, settings, row = self._check()
            accuracies = run_tasks(
                *(tasks, self._train_and_test, self.workdir, settings),
                tell=lambda line: print(line, flush=True),
                on_done=self._clean_up,
            )
        table = markdown_table if self.markdown else plain_table
        print(table(table_columns(row), list(table_rows(accuracies, row))))
        if row is not None:
            print(describe_row(row, self.recipe))
        print(f"results: {shlex.quote(str(self.workdir))}")

    def _check(self):
        """Tasks, settings and the row of the paper, after what could fail late was tried."""
        from keras_vit.data.processes import process
        from keras_vit.data.sources.paper import DATASETS
        from keras_vit.experiments.digests import file_digest
        from keras_vit.experiments.vtab import check_data, find_tasks, read_results
        from keras_vit.experiments.vtab_tables import find_row
        from keras_vit.training.distribution import check_batch
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.starting_model import make_model

        if process()[1] > 1:
            raise ValueError(
                "`keras-vit vtab` runs in one process; several can share out the tasks with "
                f"`--tasks`. Received: {process()[1]} processes that train together"
            )
        tasks = find_tasks(self.tasks)
        if not self.recipe.is_of_classes:
            raise ValueError(
                f"`loss` must be of classes, which VTAB has. Received: loss={self.recipe.loss!r}"
            )
        check_batch(self.recipe)
        # Raises if the fewest images of a run are too few for the warm-up.
        self.recipe.epoch_lengths(800)
        settings = {
            "model": findable_model(self.model),
            "dtype": self.dtype,
            **dataclasses.asdict(self.recipe),
            **file_digest(find_model(self.model)),
        }
        done = read_results(self.workdir, settings)
        missing = [task for task in tasks if task not in done]
        model = None
        if missing or self.compare is not None:
            # What is wrong with it is seen before datasets are downloaded.
            num_classes = DATASETS[tasks[0]].num_classes
            model = make_model(self.recipe, self.model, num_classes, self.dtype)
        row = find_row(self.model, model, self.compare)
        check_data(missing, self.data_dir)
        return tasks, settings, row

    def _train_and_test(self, task):
        """The accuracy on the test split, after training as VTAB-1k has it."""
        from keras_vit.data.datasets import load
        from keras_vit.evaluation.classification import evaluate

        recipe, facts = self._choose(task)
        print(f"{task}: training on 1,000 images, learning rate {recipe.learning_rate:g}")
        model, _ = self._train(task, recipe, self._runs(task)[0], "train+validation", None, facts)
        batch_size = recipe.batch_size // recipe.accumulation_steps
        test = load(task, "test", recipe.image_size, batch_size, data_dir=self.data_dir)
        accuracy = evaluate(model, test)["accuracy"]
        if len(test.skipped):
            print(test.skipped)
        return accuracy

    def _choose(self, task):
        """The recipe with the learning rate that is best on the 200 held-out images."""
        from keras_vit.experiments.sweep import choose_learning_rate

        if not self.recipe.learning_rates:
            return self.recipe, {}

        def train(recipe):
            print(f"{task}: training on 800 images, learning rate {recipe.learning_rate:g}")
            workdir = self._runs(task)[1] / f"{recipe.learning_rate:g}"
            return self._train(task, recipe, workdir, "train", "validation")[1]

        recipe, accuracies = choose_learning_rate(self.recipe, train)
        return recipe, {"sweep": {f"{rate:g}": value for rate, value in accuracies.items()}}

    def _train(self, task, recipe, workdir, split, validation, facts=None):
        """The trained model and the metrics of the epochs."""
        import gc

        from keras_vit.training.fit import fit
        from keras_vit.training.starting_model import make_model
        from keras_vit.training.training_data import load_training_data

        # The model before is in cycles of references, and there may be no room for another.
        gc.collect()
        splits = {"split": split, "validation": validation}
        data = load_training_data(recipe, task, data_dir=self.data_dir, **splits)
        model = make_model(recipe, self.model, len(data[0].class_names), self.dtype)
        facts = {
            "model": findable_model(self.model),
            "data": task,
            "split": split,
            "dtype": self.dtype,
            **(facts or {}),
        }
        return model, fit(recipe, model, data, workdir, facts, resume=True, keep=1)

    def _runs(self, task):
        """The directories of a task's run, and of those that choose a learning rate for it."""
        name = task.removeprefix("vtab/")
        return self.workdir / name, self.workdir / f"{name}-sweep"

    def _clean_up(self, task):
        """Deletes the models and states of a task: of 19 tasks they fill a disk."""
        import shutil

        from keras_vit.training.runs.run import STATES

        if self.keep_models:
            return
        for directory in self._runs(task):
            for path in [*directory.rglob("*.keras"), *directory.rglob(STATES)]:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def with_one_rate(recipe):
    """A recipe without a choice of learning rates where there is but one of them."""
    if len({*recipe.learning_rates}) != 1:
        return recipe
    return dataclasses.replace(recipe, learning_rate=recipe.learning_rates[0], learning_rates=())


def findable_model(model):
    """The name of a model, such that it is found from any working directory."""
    from keras_vit.training.starting_model import is_variant

    path = pathlib.Path(model).expanduser()
    return str(path.resolve()) if path.exists() and not is_variant(model) else model


def describe_row(row, recipe):
    """Where reported accuracies are from, and which settings are not those they were got with."""
    from keras_vit.experiments.vtab_tables import SOURCE

    wanted, had = dataclasses.asdict(RECIPES[RECIPE]), dataclasses.asdict(recipe)
    others = [name for name in wanted if name not in FREE and had[name] != wanted[name]]
    settings = f"; other settings than the paper's: {', '.join(others)}" if others else ""
    return f"reported: {row.name}, {row.source}, tasks: {SOURCE}{settings}"
