"""`keras-vit study` and `keras-vit study paper`: rerun and print the paper's comparisons."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Command, Table, plain_table
from keras_vit.cli.train import NamedRecipe
from keras_vit.experiments.study_table import STUDIES

_WHAT = "; ".join(f"{name}: {study.what}" for name, study in STUDIES.items())
_TUNE = "Values to try. For each setting of the study, the best value in validation is used."


@dataclasses.dataclass
class Study(Command):
    """Change one thing in a recipe, train with several seeds, and draw the accuracies.

    The runs, a table and a figure are written to `--workdir`. The same command resumes a stopped
    study. `keras-vit study paper` prints the tables and figures of the paper.

    Example: keras-vit study positions digits_pretrain --models ViT_Ti16 --data digits --workdir
    runs/positions --image-size 64 --epochs 5, or keras-vit study data-size digits_pretrain --data
    digits --workdir runs/sizes --values 0.1 1

    Args:
        recipe: recipe of the runs.
        workdir: directory for the table, the figure and the runs.
        data: dataset as in `keras-vit train`. Models are trained on the train split and evaluated
            on the test split. Not needed for the study `datasets`.
        models: names of variants, as `--model` of `keras-vit train`.
        seeds: number of runs per setting. Run i has the recipe's seed + i, with i from 0.
        classes: classes to keep; all by default.
        data_dir: directory of TensorFlow Datasets.
        finetune: recipe for fine-tuning the trained models.
        finetune_image_size: side of the images in fine-tuning; by default the size in the recipe.
        finetune_data: dataset to fine-tune on. The accuracy is measured on its test split.
        finetune_classes: classes to keep of `--finetune-data`; all by default.
        finetune_fraction: share of the training images of `--finetune-data`.
        fewshot_data: dataset on which to measure the few-shot accuracy. By default only the study
            `data-size` measures it, on the training dataset, whose images and labels the model has
            seen.
        fewshot_classes: classes to keep of `--fewshot-data`; all by default.
        shots: number of labelled images per class for the few-shot accuracy.
        values: the settings to compare; by default those of the paper. For `data-size`, shares of
            the training images (all runs have the same number of steps); for `shapes`, factors of
            the sizes; for `datasets`, pre-training datasets; for other studies, names of settings.
    """

    study: Annotated[
        Literal[tuple(STUDIES)],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="STUDY", help=f"One of {', '.join(STUDIES)}. Changes: {_WHAT}."),
    ]
    recipe: NamedRecipe
    workdir: pathlib.Path
    data: str | None = None
    models: tuple[str, ...] = ("ViT_Ti16",)
    seeds: int = 3
    classes: tuple[str, ...] | None = None
    data_dir: pathlib.Path | None = None
    tune_learning_rates: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_weight_decays: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_dropouts: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_label_smoothings: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    finetune: str | None = None
    finetune_image_size: int | None = None
    finetune_data: str | None = None
    finetune_classes: tuple[str, ...] | None = None
    finetune_fraction: float = 1.0
    fewshot_data: str | None = None
    fewshot_classes: tuple[str, ...] | None = None
    shots: int = 5
    values: tuple[str, ...] | None = None

    def run(self):
        """Train, print the table and draw the figure."""
        from keras_vit.experiments.grid import RESULTS
        from keras_vit.experiments.study_run import FIGURE, study, summary_table
        from keras_vit.inspection.figures.drawing import check_matplotlib
        from keras_vit.training.recipe import find_recipe

        check_matplotlib()
        tune = {
            "learning_rate": self.tune_learning_rates,
            "weight_decay": self.tune_weight_decays,
            "dropout": self.tune_dropouts,
            "label_smoothing": self.tune_label_smoothings,
        }
        not_options = ("study", "debug", "finetune_image_size")
        options = {
            name: value
            for name, value in vars(self).items()
            if name not in not_options and not name.startswith("tune_")
        }
        options["tune"] = {field: values for field, values in tune.items() if values}
        if self.finetune_image_size is not None:
            options["finetune"] = dataclasses.replace(
                find_recipe(self.finetune), image_size=self.finetune_image_size
            )
        print(plain_table(*summary_table(study(self.study, **options))))
        workdir = self.workdir.expanduser().resolve()
        print(f"Table and figure: {workdir / RESULTS}, {workdir / FIGURE}")


@dataclasses.dataclass
class Paper(Table):
    """Print a table or figure of the ViT paper, next to the numbers of this package and your runs.

    Without options the tables and figures are listed.

    Example: keras-vit study paper --table 2 --measured runs/vtab

    Args:
        table: number of a table, 1 to 9.
        figure: number of a figure, 2 to 5, instead of a table.
        measured: your results, to print next to those of the paper: directories of `keras-vit vtab`
            or `keras-vit study`, or ROW=DIRECTORY. ROW is a row of the table, and DIRECTORY a run
            to evaluate on the test split, such as ViT_L16/jft300m/cifar10=runs/cifar.
        data_dir: directory of TensorFlow Datasets, to evaluate runs.
    """

    table: int | None = None
    figure: int | None = None
    measured: tuple[str, ...] = ()
    data_dir: pathlib.Path | None = None

    @property
    def needs_keras(self):
        """Whether there may be runs to evaluate."""
        return bool(self.measured)

    def run(self):
        """Print the table."""
        from keras_vit.experiments.paper_results import paper_rows
        from keras_vit.experiments.paper_tables import CONTENTS, paper_table

        names = [f"Table {self.table}"] if self.table is not None else []
        names += [f"Figure {self.figure}"] if self.figure is not None else []
        if not names and not self.measured:
            statements = map(dict.values, paper_rows("statements"))
            for name, text in (*CONTENTS.items(), *statements):
                print(f"- {name}: {text}" if self.markdown else f"{name:<12}  {text}")
            return
        if len(names) != 1:
            raise ValueError(
                "One of `--table` and `--figure` must be given. "
                f"Received: table={self.table}, figure={self.figure}"
            )
        tables = [paper_table(*names)]
        if self.measured:
            from keras_vit.experiments.measured import measured_tables

            tables += measured_tables(*names, self.measured, self.data_dir)
        for table in tables:
            print(table.title)
            # Markdown needs an empty line between paragraphs.
            between = "\n" * self.markdown
            print(between, end="")
            self.print_table(table.columns, table.rows)
            for note in table.notes:
                print(f"{between}{note}")
            print()
