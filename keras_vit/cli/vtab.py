"""`keras-vit vtab`: fine-tune a model on the tasks of VTAB-1k."""

import dataclasses
import pathlib
import shlex
from typing import Annotated

import tyro

from keras_vit.cli.command import Policy, Table
from keras_vit.training.recipe import RECIPES, Recipe


@dataclasses.dataclass
class Vtab(Table):
    """Fine-tune a model on the 1,000 images of each VTAB-1k task, and print the mean accuracies.

    The same command resumes after a stop.

    Example: keras-vit vtab ViT_L16/imagenet21k --workdir runs/vtab --accumulation-steps 16

    Args:
        model: as `--model` of `keras-vit train`.
        workdir: directory for the results and the run of each task; a new directory, or, to resume,
            the directory of the same command.
        tasks: tasks (`dtd`, `svhn`, ...) or groups (`natural`, `specialized`, `structured`); all by
            default. More tasks can be added later in the same directory.
        seeds: number of runs per task, with the recipe's seed and the seeds after it. For several
            seeds, the standard deviation of the accuracies is printed.
        data_dir: directory of TensorFlow Datasets.
        dtype: as in `keras-vit train`.
        strategy: as in `keras-vit train`. VTAB runs in one process.
        keep_models: keep the models and states of finished tasks.
        compare: row of Table 2 of the paper to compare with, such as ViT_L16/jft300m/vtab. By
            default the row of this model, if it is a checkpoint that the paper fine-tunes.
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
        """Train on the tasks that are not finished, and print the table."""
        from keras_vit.experiments.vtab_run import vtab
        from keras_vit.experiments.vtab_tables import describe_row, table_columns, table_rows

        options = {n: v for n, v in vars(self).items() if n not in ("markdown", "debug")}
        result = vtab(**options)
        reported, accuracies = result.reported, [*result.accuracies.values()]
        self.print_table(table_columns(reported), table_rows(accuracies, reported))
        if reported is not None:
            print(describe_row(reported, result.recipe))
        print(f"results: {shlex.quote(str(self.workdir.expanduser().resolve()))}")
