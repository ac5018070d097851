"""`keras-vit study`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.train import NamedRecipe
from keras_vit.experiments.studies.settings import POSITIONS, STUDIES

_WHAT = "; ".join(f"{name}: {row.what}" for name, row in STUDIES.items())
_TUNE = "Values to choose from on the validation images, for each line of the study."


@dataclasses.dataclass
class Study:
    """Train by the same recipe with one thing changed, over several seeds, and draw the accuracies.

    The directory gets a table, a figure and the runs. The same command resumes a stopped study.
    `keras-vit study paper` prints the tables and figures of the paper.

    Example: keras-vit study positions digits_pretrain --models ViT_Ti16 --data digits --workdir
    runs/positions --image-size 64 --epochs 5, or keras-vit study data-size digits_pretrain --data
    digits --workdir runs/sizes --fractions 0.1 1
    """

    study: Annotated[
        Literal[tuple(STUDIES)],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="STUDY", help=f"One of {', '.join(STUDIES)}. Changed: {_WHAT}."),
    ]
    recipe: NamedRecipe
    """Recipe of the runs."""
    workdir: pathlib.Path
    """Directory for the table, the figure and the runs."""
    data: str | None = None
    """As in `keras-vit train`. Models train on the train split; the accuracy is that of the test
    split. The study of datasets does not need it."""
    models: tuple[str, ...] = ("ViT_Ti16",)
    """Names of variants, as `--model` of `keras-vit train`."""
    seeds: int = 3
    """Runs per setting, with the seed of the recipe and the seeds after it."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    tune_learning_rates: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_weight_decays: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_dropouts: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    tune_label_smoothings: Annotated[tuple[float, ...], tyro.conf.arg(help=_TUNE)] = ()
    finetune: str | None = None
    """Recipe by which the trained models are fine-tuned."""
    finetune_image_size: int | None = None
    """Side of its images; by default that of the recipe."""
    finetune_data: str | None = None
    """Dataset of the fine-tuning, whose test split is evaluated."""
    finetune_classes: tuple[str, ...] | None = None
    """Classes to keep of `--finetune-data`; all by default."""
    finetune_fraction: float | None = None
    """Share of its training images; all by default."""
    fewshot_data: str | None = None
    """Dataset of the few-shot accuracy. For data-size it is measured without it, too, on the
    dataset that is trained on, whose images and labels the model has seen."""
    fewshot_classes: tuple[str, ...] | None = None
    """Classes to keep of `--fewshot-data`; all by default."""
    shots: int | None = None
    """Labelled images per class of the few-shot accuracy, by default 5."""
    fractions: tuple[float, ...] | None = None
    """For data-size: the shares of the training images, by default 0.03 0.1 0.3 1. Training
    takes the same number of steps for every share."""
    datasets: tuple[str, ...] | None = None
    """For datasets: the pre-training sets."""
    factors: tuple[float, ...] | None = None
    """For shapes: the factors of the sizes, by default 0.5 2."""
    positions: tuple[Literal[tuple(POSITIONS)], ...] | None = None
    """For positions: the kinds to compare; all by default."""

    def run(self):
        """Train, print the table and draw the figure."""
        from keras_vit.cli.arguments import plain_table
        from keras_vit.experiments.studies import FIGURE, study
        from keras_vit.experiments.studies.table import TABLE, summary
        from keras_vit.inspection.figures.drawing import check_matplotlib

        check_matplotlib()
        options = dict(vars(self))
        tune = {
            "learning_rate": options.pop("tune_learning_rates"),
            "weight_decay": options.pop("tune_weight_decays"),
            "dropout": options.pop("tune_dropouts"),
            "label_smoothing": options.pop("tune_label_smoothings"),
        }
        options["tune"] = {field: values for field, values in tune.items() if values}
        options = {name: options[name] for name in options if name not in ("study", "debug")}
        rows = study(self.study, **options)
        print(plain_table(*summary(rows)))
        workdir = self.workdir.expanduser().resolve()
        print(f"Table and figure: {workdir / TABLE}, {workdir / FIGURE}")
