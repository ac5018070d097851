"""`keras-vit study`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.train import AnyRecipe


@dataclasses.dataclass
class Study:
    """Train by the same recipe with one thing changed, over several seeds, and draw the accuracies.

    What is changed: in `scaling` the model, in `data-size` the share of the training images, in
    `positions` the position embedding, in `poolings` the input of the head. The directory gets a
    table, a figure and the runs. The same command resumes a stopped study.

    Example: keras-vit study positions digits_pretrain --models ViT_Ti16 --data digits --workdir
    runs/positions --image-size 64 --epochs 5, or keras-vit study data-size digits_pretrain --data
    digits --workdir runs/sizes --fractions 0.1 1
    """

    study: Annotated[Literal["scaling", "data-size", "positions", "poolings"], tyro.conf.Positional]
    """The thing that is changed."""
    recipe: AnyRecipe
    data: str
    """As in `keras-vit train`. Models train on the train split; the accuracy is that of the test
    split."""
    workdir: pathlib.Path
    """Directory for the table, the figure and the runs."""
    models: tuple[str, ...] = ("ViT_Ti16",)
    """Names of variants (see `keras-vit models`)."""
    seeds: int = 3
    """Runs per setting, with the seed of the recipe and the seeds after it."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    fractions: tuple[float, ...] | None = None
    """For data-size: the shares of the training images, by default 0.03 0.1 0.3 1. Training
    takes the same number of steps for every share."""
    fewshot_data: str | None = None
    """For data-size: the dataset of the few-shot accuracy. By default the one trained on, whose
    images and labels the model has seen."""
    fewshot_classes: tuple[str, ...] | None = None
    """For data-size: classes to keep of `--fewshot-data`; all by default."""
    shots: int | None = None
    """For data-size: labelled images per class, by default 5."""

    def run(self):
        """Train, print the table and draw the figure."""
        from keras_vit.cli.tables import plain_table
        from keras_vit.experiments.studies import FIGURE, study
        from keras_vit.experiments.study_table import TABLE, summary
        from keras_vit.inspection.figures.drawing import check_matplotlib

        check_matplotlib()
        own = ("study", "debug")
        options = {name: value for name, value in vars(self).items() if name not in own}
        rows = study(self.study, **options)
        print(plain_table(*summary(rows)))
        workdir = self.workdir.expanduser().resolve()
        print(f"Table and figure: {workdir / TABLE}, {workdir / FIGURE}")
