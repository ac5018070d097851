"""`keras-vit fewshot`: few-shot evaluation of frozen features."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Reading, plain_table


@dataclasses.dataclass
class Fewshot(Reading):
    """Measure the accuracy of a frozen model's features with a few labelled images per class.

    Example: keras-vit fewshot ViT_B16/augreg_imagenet21k --data folder:photos --shots 1 5

    Args:
        model: A run's directory (its best model), a .keras file, or a checkpoint as in `convert`;
            or a directory of features to learn from, written by `keras-vit predict --outputs
            features`.
        data: dataset as in `keras-vit train`, by default the dataset of the run. If `model` is a
            directory of features, a directory of the features to classify.
        method: the classifier: least squares in closed form (as in big_vision), nearest neighbors,
            or logistic regression.
        shots: numbers of images per class to learn from; by default 1 5 10 25 for least-squares,
            and all images for the other methods.
        seeds: number of random choices of these images, with the seeds 0, 1, 2, ...
        l2: strength of the regularization: for least-squares, by default 1024; for linear-probe,
            the inverse of scikit-learn's C, by default 1.
        layers: names of layers, such as block_8 encoder_norm. Their class tokens are concatenated,
            or the means of their patches if the model's output does not depend on the class token.
            By default, the features are the input of the head. Not for directories of features.
        train_split: the split to learn from: train, validation, test, or several joined with +.
        test_split: the split to classify.
        cache: directory in which to keep the features for later calls. They are used again only for
            the same model and unchanged data.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    data: str | None = None
    method: Literal["least-squares", "knn", "linear-probe"] = "least-squares"
    shots: tuple[int | Literal["all"], ...] | None = None
    seeds: int = 3
    l2: float | None = None
    layers: tuple[str, ...] | None = None
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
        not_options = ("model", "data", "seeds", "image_size", "debug")
        options = {name: value for name, value in vars(self).items() if name not in not_options}
        accuracies = evaluate_fewshot(trained.model, data, seeds=seeds, **options)
        print(plain_table(("shots", "accuracy", "seeds"), summary_rows(accuracies)))
