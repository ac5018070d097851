"""`keras-vit evaluate`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from keras_vit.core.text import mean_and_deviation, printable


@dataclasses.dataclass
class Evaluate:
    """Measure a trained model's accuracy on a dataset.

    Example: keras-vit evaluate runs/photos --data folder:photos --split test
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`; or the
    directory of `train --seeds`, whose runs are evaluated one after the other."""
    data: str | None = None
    """As in `keras-vit train`; by default the data of the run."""
    split: str = "test"
    """train, validation or test."""
    batch_size: int = 32
    """Images in one step."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; by default those of the run."""
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""
    per_class: bool = False
    """Print a table of the classes: images, accuracy, most frequent mistake; for images of several
    labels average precision, F1 and threshold."""
    confusion: pathlib.Path | None = None
    """File to write the confusion matrix to, as CSV: one row per class, one column per
    prediction."""
    confusion_figure: pathlib.Path | None = None
    """PNG file with a figure of the confusion matrix."""
    compare: str | None = None
    """Name of a reported accuracy to compare with, such as ViT_L16/jft300m/cifar10 (Table 2 of the
    paper) or a name of `keras-vit checkpoints`. By default the row for this model, if it is a
    published file or a run of a recipe of the paper."""
    central_crop_from: int | None = None
    """Resize the smaller side to so many pixels and cut out the middle, as big_vision does. The
    original resizes the whole image."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    upright: bool = False
    """Turn photographs upright by their EXIF orientation, as is done anyway for a run that was
    trained with `--upright`."""

    def run(self):
        """Print the metrics."""
        import keras

        from keras_vit.experiments.seeds import finished_runs
        from keras_vit.training import distribution

        if keras.backend.backend() == "jax":
            distribution.join_processes()
        check_files(self.confusion, self.confusion_figure)
        runs = finished_runs(self.model)
        if runs:
            self._evaluate_seeds(runs)
        else:
            self._evaluate()

    def _evaluate_seeds(self, runs):
        """Evaluate the runs, and print the means and standard deviations of the metrics."""
        from keras_vit.training import distribution

        if self.confusion or self.confusion_figure:
            raise ValueError(
                "`--confusion` and `--confusion-figure` are for one run. Received: "
                f"{str(self.model)!r} with {', '.join(run.name for run in runs)}"
            )
        found = []
        for run in runs:
            if distribution.is_first_process():
                print(f"{run.name}:")
            found.append(dataclasses.replace(self, model=str(run))._evaluate())
        if distribution.is_first_process():
            print(f"mean of {len(found)} runs:")
            for name in found[0]:
                if name != "images":
                    print(f"{name}: {mean_and_deviation([metrics[name] for metrics in found], 4)}")

    def _evaluate(self):
        """Print the metrics of a model, and return them."""
        from keras_vit.cli.convert import as_image_size
        from keras_vit.cli.data import describe_part, print_left_out
        from keras_vit.evaluation.classification import predictions
        from keras_vit.experiments.trained_model import open_trained
        from keras_vit.training import distribution

        trained = open_trained(self.model, as_image_size(self.image_size))
        names = ("batch_size", "classes", "data_dir", "central_crop_from", "max_skipped", "upright")
        options = {name: getattr(self, name) for name in names}
        dataset = trained.load(self.data, self.split, **options)
        if dataset.info.dataset.source.has_masks:
            self._check_masks(dataset)
            print_left_out(dataset.info.left_out)
            trained.warn_if_trained_on(dataset.info.dataset.source)
            return self._evaluate_masks(trained.model, dataset.info.dataset.source)
        is_multilabel = getattr(trained.model, "thresholds", None) is not None
        refused = self.confusion or self.confusion_figure
        refused = refused or (self.compare if is_multilabel else self.per_class)
        if refused and dataset.element_spec[1].shape.rank == 2:
            raise ValueError(
                "`--confusion`, and `--per-class` without or `--compare` with `model.thresholds`, "
                "need images of one class each. "
                f"Received: {self.data!r}, whose images have several labels"
            )
        print_left_out(dataset.info.left_out)
        is_first = distribution.is_first_process()
        if is_first and not trained.is_own_data(self.data):
            part = describe_part(self.data, dataset.info.dataset.source, self.split, self.classes)
            if part:
                print(f"{part}; `--split train+validation+test` evaluates all")
        trained.warn_if_trained_on(dataset.info.dataset.source)
        wanted = {"compare": self.compare, "central_crop_from": self.central_crop_from}
        num_classes = len(dataset.class_names)
        reported = trained.find_reported(self.data, self.split, num_classes, **wanted)
        predicted = predictions(trained.model, dataset)
        if len(dataset.info.skipped):
            # Each process prints its own.
            print(dataset.info.skipped)
        if is_first:
            self._print(predicted, reported, trained.model.input_shape[1:3])
        return predicted.summary()

    def _check_masks(self, dataset):
        names = ("confusion", "confusion_figure", "compare")
        refused = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]
        if dataset.info.dataset.shard[1] > 1:
            refused.append("several processes")
        if refused:
            raise ValueError(
                "Segmenters are evaluated by one process, without `--confusion`, "
                f"`--confusion-figure` and `--compare`. Received: {', '.join(refused)}"
            )

    def _evaluate_masks(self, model, source):
        """Print the metrics of a segmenter, and return them."""
        from keras_vit.evaluation.segmentation import evaluate_segmentation

        options = {"batch_size": self.batch_size, "max_skipped": self.max_skipped}
        found = evaluate_segmentation(model, source, **options)
        classes = zip(found.class_names, found.iou, strict=True) if self.per_class else ()
        for name, value in [*found.summary().items(), *((f"iou of {n}", v) for n, v in classes)]:
            print(f"{printable(name)}: {value if name == 'images' else f'{value:.4f}'}")
        return found.summary()

    def _print(self, predicted, reported, image_size):
        from keras_vit.cli.tables import plain_table
        from keras_vit.evaluation.metrics import (
            COLUMNS,
            LabelPredictions,
            class_rows,
            confusion_matrix,
            write_confusion,
        )

        metrics = predicted.summary()
        for name, value in metrics.items():
            print(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")
        if reported is not None:
            print(reported.compare(metrics["accuracy"], image_size, self.central_crop_from))
        if not (self.per_class or self.confusion or self.confusion_figure):
            return
        names = predicted.class_names
        if isinstance(predicted, LabelPredictions):
            images, *numbers = *predicted.per_class(), predicted.thresholds
            columns = [map("{:.4f}".format, values) for values in numbers]
            rows = list(zip(names, map(str, images), *columns, strict=True))
            print(plain_table(("class", "images", "average precision", "F1", "threshold"), rows))
            return
        matrix = confusion_matrix(predicted.labels, predicted.predicted, len(names))
        if self.per_class:
            print(plain_table(COLUMNS, list(class_rows(matrix, names))))
        if self.confusion:
            write_confusion(matrix, names, self.confusion)
            print(f"confusion matrix: {self.confusion}")
        if self.confusion_figure:
            from keras_vit.inspection.figures.confusion import draw_confusion

            draw_confusion(matrix, names, self.confusion_figure)
            print(f"confusion matrix: {self.confusion_figure}")


def check_files(confusion, figure):
    """Raise `ValueError` for a file that could not be written after a long evaluation."""
    from keras_vit.inspection.figures.drawing import check_matplotlib

    if figure is not None:
        check_matplotlib()
    files = ("--confusion", confusion, ".csv"), ("--confusion-figure", figure, ".png")
    for flag, path, suffix in files:
        if path is None:
            continue
        if path.suffix != suffix or path.is_dir() or not path.parent.is_dir():
            raise ValueError(
                f"`{flag}` must be a {suffix} file in a folder that exists. Received: {str(path)!r}"
            )
