"""`keras-vit fewshot`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro


@dataclasses.dataclass
class Fewshot:
    """Measure the accuracy of a frozen model's features with a few labelled images of each class.

    Example: keras-vit fewshot ViT_B16/augreg_imagenet21k --data folder:photos --shots 1 5
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`; or a
    directory of features that `predict --outputs features` wrote, of the images to learn from."""
    data: str | None = None
    """Dataset as in `keras-vit train`, by default that of the run; for features the directory of
    those to classify."""
    method: Literal["least-squares", "knn", "linear-probe"] = "least-squares"
    """How to classify: least squares in closed form (as big_vision), nearest neighbors, or logistic
    regression."""
    shots: tuple[int | Literal["all"], ...] | None = None
    """Images per class to learn from; by default 1 5 10 25 for least-squares, else all."""
    seeds: int = 3
    """Number of random choices of the images, with the seeds 0, 1, 2, ..."""
    l2: float | None = None
    """Regularization: 1024 by default for least-squares; for linear-probe the inverse of
    scikit-learn's C, 1 by default."""
    train_split: str = "train"
    """The split to learn from: train, validation, test, or several joined with +."""
    test_split: str = "test"
    """The split to classify."""
    cache: pathlib.Path | None = None
    """Directory to keep the features in, for the next time. Features of another model, or of data
    that have changed, are never used."""
    batch_size: int = 32
    """Images in one step."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""
    central_crop_from: int | None = None
    """Resize the smaller side to so many pixels and cut out the middle. The whole image is resized
    by default."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    upright: bool = False
    """Turn photographs upright by their EXIF orientation. Runs trained with `--upright` always do
    so."""

    def run(self):
        """Print a table."""
        from keras_vit.cli.arguments import plain_table
        from keras_vit.cli.convert import as_image_size
        from keras_vit.evaluation.fewshot import evaluate_fewshot, summary
        from keras_vit.evaluation.stored import evaluate_stores, is_store, read_features
        from keras_vit.experiments.trained_model import open_trained

        seeds = tuple(range(self.seeds))
        if is_store(self.model):
            self._check_flags_of_stores()
            if self.data is None:
                raise ValueError(
                    "`data` must be given for features: those to classify. Received: data=None"
                )
            train, test = read_features(self.model), read_features(self.data)
            accuracies = evaluate_stores(train, test, self.shots, seeds, self.method, self.l2)
            print(plain_table(("shots", "accuracy", "seeds"), summary(accuracies)))
            return
        trained = open_trained(self.model, as_image_size(self.image_size))
        if self.data is None:
            self.classes = self.classes or trained.run.get("classes")
        self.upright = self.upright or trained.is_upright
        data = trained.name_of(self.data)
        own = ("model", "data", "seeds", "image_size", "debug")
        options = {name: value for name, value in vars(self).items() if name not in own}
        accuracies = evaluate_fewshot(trained.model, data, seeds=seeds, **options)
        print(plain_table(("shots", "accuracy", "seeds"), summary(accuracies)))

    def _check_flags_of_stores(self):
        used = {"model", "data", "method", "shots", "seeds", "l2"}
        for field in dataclasses.fields(Fewshot):
            if field.name not in used and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"`--{field.name.replace('_', '-')}` is for a model and a dataset. "
                    f"Received: features in {self.model!r}"
                )
