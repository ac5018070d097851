"""`keras-vit vtab`."""

import dataclasses
import pathlib
import shlex
from typing import Annotated

import tyro

from keras_vit.cli.command import Policy, Table
from keras_vit.training.recipe import RECIPES, Recipe


@dataclasses.dataclass
class Vtab(Table):
    """Fine-tune a model on each task of VTAB-1k, 1,000 images each, and print the mean accuracies.

    The same command resumes where it was stopped.

    Example: keras-vit vtab ViT_L16/imagenet21k --workdir runs/vtab --accumulation-steps 16

    Args:
        model: the model, as `--model` of `keras-vit train`.
        workdir: directory for the results and a run for each task: a new one or, to resume, that of
            the same command.
        tasks: tasks (`dtd`, `svhn`, ...) or groups (`natural`, `specialized`, `structured`); all by
            default. Others can be added later in the same directory.
        seeds: run all of it so many times, with the recipe's seed and the following ones;
            accuracies of several are printed with their standard deviation.
        data_dir: directory of TensorFlow Datasets.
        dtype: as in `keras-vit train`.
        strategy: as in `keras-vit train`. VTAB runs in one process.
        keep_models: keep the models of tasks that are done, and the states to resume from.
        compare: row of Table 2 of the paper to compare with, such as ViT_L16/jft300m/vtab. By
            default the row for this model, if it is a published file that the paper fine-tunes.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    workdir: pathlib.Path
    tasks: tuple[str, ...] = ()
    recipe: Recipe = RECIPES["finetune_vtab"]
    seeds: int = 1
    data_dir: pathlib.Path | None = None
    dtype: Policy | None = None
    strategy: str = "auto"
    keep_models: bool = False
    compare: str | None = None

    def run(self):
        """Train on the tasks that are not done, and print the table."""
        from keras_vit.experiments.vtab_run import vtab
        from keras_vit.experiments.vtab_tables import describe_row, table_columns, table_rows

        own = ("markdown", "debug")
        found = vtab(**{name: value for name, value in vars(self).items() if name not in own})
        row = found.reported
        self.print_table(table_columns(row), table_rows([*found.accuracies.values()], row))
        if row is not None:
            print(describe_row(row, found.recipe))
        print(f"results: {shlex.quote(str(self.workdir.expanduser().resolve()))}")
