"""`keras-vit vtab`."""

import dataclasses
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.training.recipe import Recipe
from keras_vit.training.recipes import RECIPES


@dataclasses.dataclass
class Vtab:
    """Fine-tune a model on each task of VTAB-1k, 1,000 images each, and print the mean accuracies.

    The same command resumes where it was stopped.

    Example: keras-vit vtab ViT_L16/imagenet21k --workdir runs/vtab --accumulation-steps 16
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The model, as `--model` of `keras-vit train`."""
    workdir: pathlib.Path
    """Directory for the results and a run for each task: a new one or, to resume, that of the
    same command."""
    tasks: tuple[str, ...] = ()
    """Tasks (`dtd`, `svhn`, ...) or groups (`natural`, `specialized`, `structured`); all by
    default. Others can be added later in the same directory."""
    recipe: Recipe = RECIPES["finetune_vtab"]
    seeds: int = 1
    """Run all of it so many times, with the recipe's seed and the following ones; accuracies of
    several are printed with their standard deviation."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] | None = None
    """As in `keras-vit train`."""
    strategy: str = "auto"
    """As in `keras-vit train`. VTAB runs in one process."""
    keep_models: bool = False
    """Keep the models of tasks that are done, and the states to resume from."""
    compare: str | None = None
    """Row of Table 2 of the paper to compare with, such as ViT_L16/jft300m/vtab. By default the
    row for this model, if it is a published file that the paper fine-tunes."""
    markdown: bool = False
    """Print the table as Markdown."""

    def run(self):
        """Train on the tasks that are not done, and print the table."""
        from keras_vit.cli.arguments import markdown_table, plain_table
        from keras_vit.experiments.vtab_run import vtab_seeds
        from keras_vit.experiments.vtab_tables import describe_row, table_columns, table_rows

        own = ("markdown", "debug")
        options = {name: value for name, value in vars(self).items() if name not in own}
        runs = [*vtab_seeds(**options).values()]
        row = runs[0].reported
        table = markdown_table if self.markdown else plain_table
        print(table(table_columns(row), list(table_rows([r.accuracies for r in runs], row))))
        if row is not None:
            print(describe_row(row, runs[0].recipe))
        print(f"results: {shlex.quote(str(self.workdir.expanduser().resolve()))}")
