"""`keras-vit fewshot`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Reading, plain_table


@dataclasses.dataclass
class Fewshot(Reading):
    """Measure the accuracy of a frozen model's features with a few labelled images of each class.

    Example: keras-vit fewshot ViT_B16/augreg_imagenet21k --data folder:photos --shots 1 5

    Args:
        model: A run's directory (its best model), a .keras file, or a checkpoint as in `convert`;
            or a directory of features that `predict --outputs features` wrote, of the images to
            learn from.
        data: dataset as in `keras-vit train`, by default that of the run; for features the
            directory of those to classify.
        method: how to classify: least squares in closed form (as big_vision), nearest neighbors, or
            logistic regression.
        shots: images per class to learn from; by default 1 5 10 25 for least-squares, else all.
        seeds: number of random choices of the images, with the seeds 0, 1, 2, ...
        l2: regularization: 1024 by default for least-squares; for linear-probe the inverse of
            scikit-learn's C, 1 by default.
        train_split: the split to learn from: train, validation, test, or several joined with +.
        test_split: the split to classify.
        cache: directory to keep the features in, for the next time. Features of another model, or
            of data that have changed, are never used.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    data: str | None = None
    method: Literal["least-squares", "knn", "linear-probe"] = "least-squares"
    shots: tuple[int | Literal["all"], ...] | None = None
    seeds: int = 3
    l2: float | None = None
    train_split: str = "train"
    test_split: str = "test"
    cache: pathlib.Path | None = None

    def run(self):
        """Print a table."""
        from keras_vit.evaluation.feature_store import evaluate_stores, is_store, read_features
        from keras_vit.evaluation.fewshot import evaluate_fewshot, summary_rows
        from keras_vit.experiments.model_and_data import open_trained

        seeds = tuple(range(self.seeds))
        if is_store(self.model):
            train, test = read_features(self.model), read_features(self.data)
            accuracies = evaluate_stores(train, test, self.shots, seeds, self.method, self.l2)
            print(plain_table(("shots", "accuracy", "seeds"), summary_rows(accuracies)))
            return
        trained = open_trained(self.model, self.image_size)
        if self.data is None:
            self.classes = self.classes or trained.run.get("classes")
        self.upright = self.upright or trained.is_upright
        data = trained.name_of(self.data)
        own = ("model", "data", "seeds", "image_size", "debug")
        options = {name: value for name, value in vars(self).items() if name not in own}
        accuracies = evaluate_fewshot(trained.model, data, seeds=seeds, **options)
        print(plain_table(("shots", "accuracy", "seeds"), summary_rows(accuracies)))
