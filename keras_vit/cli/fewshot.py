"""`keras-vit fewshot`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro


@dataclasses.dataclass
class Fewshot:
    """Measure what a few labelled images of each class make of a frozen model's features.

    Example: keras-vit fewshot ViT_B16/augreg_imagenet21k --data folder:photos --shots 1 5
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`."""
    data: str
    """As in `keras-vit train`."""
    method: Literal["least-squares", "knn", "linear-probe"] = "least-squares"
    """How to classify: least squares in closed form, as big_vision does, the nearest neighbours, or
    logistic regression."""
    shots: tuple[int | Literal["all"], ...] | None = None
    """Images of each class to learn from; by default 1 5 10 25 for least-squares, else all."""
    seeds: int = 3
    """How many times the images are chosen, with the seeds 0, 1, 2, ..."""
    l2: float | None = None
    """Regularisation: 1024 by default for least-squares; for linear-probe the inverse of
    scikit-learn's C, 1 by default."""
    train_split: str = "train"
    """The split to learn from: train, validation, test, or several joined with +."""
    test_split: str = "test"
    """The split to classify."""
    cache: pathlib.Path | None = None
    """Directory to keep the features in, for the next time. Those of another model, or of data that
    were changed, are never used."""
    batch_size: int = 32
    """Images in one step."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    image_size: tuple[int, ...] | None = None
    """Resize the model for this image size, or tell it for a file that does not: one number, or
    height and width."""
    central_crop_from: int | None = None
    """Resize the smaller side to so many pixels and cut out the middle. The whole image is resized
    by default."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints a table."""
        from keras_vit.cli.convert import as_image_size
        from keras_vit.cli.tables import plain_table
        from keras_vit.evaluation.fewshot import check_settings, evaluate_fewshot
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.runs.saved_models import load_trained, run_of

        seeds = tuple(range(self.seeds))
        # Before a model is downloaded.
        check_settings(self.shots, seeds, self.method, self.l2)
        run = run_of(find_model(self.model))
        model = load_trained(self.model, as_image_size(self.image_size))
        accuracies = evaluate_fewshot(
            model,
            self._find_data(run),
            train_split=self.train_split,
            test_split=self.test_split,
            shots=self.shots,
            seeds=seeds,
            method=self.method,
            l2=self.l2,
            batch_size=self.batch_size,
            cache=self.cache,
            classes=self.classes,
            data_dir=self.data_dir,
            central_crop_from=self.central_crop_from,
            max_skipped=self.max_skipped,
        )
        print(plain_table(("shots", "accuracy", "seeds"), table_rows(accuracies)))

    def _find_data(self, run):
        """The dataset as the run divides it; says which of its images the model was trained on."""
        from keras_vit.data.datasets import find_source
        from keras_vit.data.fingerprints import fingerprints
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.runs.saved_models import data_of, warn_of_images

        name = data_of(run, self.data)
        path = find_model(self.model)
        if path.suffix == ".keras":
            source = find_source(name, self.test_split, self.classes, self.data_dir)
            warn_of_images(path, run, fingerprints(source))
        return name


def table_rows(accuracies):
    """A line for each number of shots: mean and standard deviation of the seeds' accuracies."""
    import numpy as np

    rows = []
    for shots in dict.fromkeys(count for count, _ in accuracies):
        values = [value for (count, _), value in accuracies.items() if count == shots]
        # An estimate from a few seeds, hence n - 1.
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        rows.append((str(shots), f"{np.mean(values):.4f}{spread}", str(len(values))))
    return rows
