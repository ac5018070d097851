"""`keras-vit evaluate`."""

import dataclasses
import json
import logging
import pathlib
import re
import shlex
from typing import Annotated

import tyro

from keras_vit.core.choices import absolute_name


@dataclasses.dataclass
class Evaluate:
    """Measure a trained model's accuracy on a dataset.

    Example: keras-vit evaluate runs/photos --data folder:photos --split test
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`."""
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
    """Resize the model for this image size, or tell it for a file that does not: one number, or
    height and width."""
    per_class: bool = False
    """Print a table of the classes: images, accuracy, most frequent mistake."""
    confusion: pathlib.Path | None = None
    """File to write the confusion matrix to, as CSV: a row a class, a column a prediction."""
    confusion_figure: pathlib.Path | None = None
    """PNG file to draw the confusion matrix in."""
    compare: str | None = None
    """Name of a reported accuracy to compare with, such as ViT_L16/jft300m/cifar10 (Table 2 of the
    paper) or a name of `keras-vit checkpoints`. Where model and dataset tell, it is found."""
    central_crop_from: int | None = None
    """Resize the smaller side to so many pixels and cut out the middle, as big_vision does. The
    original resizes the whole image."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints the metrics."""
        from keras_vit.cli.convert import as_image_size, class_names_of
        from keras_vit.evaluation.classification import predictions
        from keras_vit.training.distribution import is_first_process
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.runs.saved_models import load_trained, run_of

        join_processes()
        check_files(self.confusion, self.confusion_figure)
        path = find_model(self.model)
        run = run_of(path)
        model = load_trained(self.model, as_image_size(self.image_size))
        dataset = self._load(run, model.input_shape[1:3])
        names = class_names_of(model, self.model, is_guessing=False)
        if names is not None:
            check_same_classes(names, list(dataset.class_names), path.suffix == ".keras")
        self._report_images(run, dataset)
        reported = self._find_reported(model, run, dataset)
        predicted = predictions(model, dataset)
        if len(dataset.skipped):
            # Each process tells its own.
            print(dataset.skipped)
        if is_first_process():
            self._print(predicted, reported, model.input_shape[1:3])

    def _load(self, run, image_size):
        """The dataset."""
        from keras_vit.data.datasets import load
        from keras_vit.data.processes import process
        from keras_vit.training.runs.saved_models import data_of

        name = data_of(run, self.data)
        if name is None:
            raise ValueError(
                "`--data` must be given for a model outside of a run's directory. "
                "Received: no --data"
            )
        dataset = load(
            name,
            self.split,
            image_size=image_size,
            batch_size=self.batch_size,
            classes=self.classes or (run.get("classes") if self.data is None else None),
            data_dir=self.data_dir,
            central_crop_from=self.central_crop_from,
            max_skipped=self.max_skipped,
            shard=process(),
            exclude=self._excluded(run),
        )
        has_several_labels = dataset.element_spec[1].shape.rank == 2
        if has_several_labels and (self.per_class or self.confusion or self.confusion_figure):
            raise ValueError(
                "`--per-class` and `--confusion` need images of one class each. "
                f"Received: {name!r}, whose images have several labels"
            )
        return dataset

    def _excluded(self, run):
        """The ids that the run has left out of its data, if it is evaluated on these."""
        from keras_vit.training.runs.run import EXCLUDED_FILE, find_model

        path = run.get("exclude")
        if path is None or not self._is_own_data(run):
            return ()
        kept = find_model(self.model).with_name(EXCLUDED_FILE)
        if kept.is_file():
            return kept
        # Runs of earlier versions kept no copy.
        if not pathlib.Path(path).is_file():
            logging.getLogger("keras_vit").warning(
                "the run left out the images listed in %s, which is not there: none are left out",
                path,
            )
            return ()
        return path

    def _is_own_data(self, run):
        from keras_vit.training.runs.saved_models import data_of

        return self.data is None or data_of(run, absolute_name(self.data)) == data_of(run)

    def _report_images(self, run, dataset):
        """Print which files are not images, and warn of images that the model was trained on."""
        from keras_vit.cli.data import describe_part, print_left_out
        from keras_vit.training.distribution import is_first_process
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.runs.saved_models import warn_of_images

        print_left_out(dataset)
        if not self._is_own_data(run) and is_first_process():
            part = describe_part(self.data, self.split, self.classes)
            if part:
                print(f"{part}; `--split train+validation+test` evaluates all")
        # A run evaluated on its own training split needs no warning.
        if not (self._is_own_data(run) and self.split == "train"):
            warn_of_images(find_model(self.model), run, dataset.fingerprints())

    def _find_reported(self, model, run, dataset):
        """The reported accuracy that is meant by name, or told by model and dataset; or `None`."""
        from keras_vit.experiments.reported import (
            check_meant,
            find_reported,
            reported_of_checkpoint,
            reported_of_run,
        )
        from keras_vit.training.recipes import RECIPES
        from keras_vit.training.runs.run import AVERAGED_MODEL, BEST_MODEL, LAST_MODEL, find_model

        data = self.data or run.get("data")
        if self.compare is not None:
            if self.split != "test":
                raise ValueError(
                    "`--compare` is for the test split, of which accuracies are reported. "
                    f"Received: --split {self.split}"
                )
            row = find_reported(self.compare)
            check_meant(row, model, data, len(dataset.class_names))
            return row
        if self.split != "test":
            return None
        path = find_model(self.model)
        if path.suffix != ".keras":
            return reported_of_checkpoint(self.model, model, data)
        # The original resizes the whole image.
        if path.name in (BEST_MODEL, LAST_MODEL, AVERAGED_MODEL) and not self.central_crop_from:
            recipes = {name: dataclasses.asdict(recipe) for name, recipe in RECIPES.items()}
            # As a `run.json` has them, without tuples.
            return reported_of_run(run, json.loads(json.dumps(recipes)), model, data)
        return None

    def _print(self, predicted, reported, image_size):
        from keras_vit.cli.tables import plain_table
        from keras_vit.evaluation.metrics import confusion_matrix

        metrics = predicted.summary()
        for name, value in metrics.items():
            print(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")
        if reported is not None:
            accuracy = metrics["accuracy"]
            print(reported.compare(accuracy, image_size, self.central_crop_from))
        if not (self.per_class or self.confusion or self.confusion_figure):
            return
        names = predicted.class_names
        matrix = confusion_matrix(predicted.labels, predicted.predicted, len(names))
        if self.per_class:
            print(plain_table(CLASS_COLUMNS, list(class_rows(matrix, names))))
        if self.confusion:
            write_confusion(matrix, names, self.confusion)
            print(f"confusion matrix: {self.confusion}")
        if self.confusion_figure:
            from keras_vit.inspection.figures.confusion import draw_confusion

            draw_confusion(matrix, names, self.confusion_figure)
            print(f"confusion matrix: {self.confusion_figure}")


CLASS_COLUMNS = ("class", "images", "accuracy", "most frequent mistake")


def join_processes():
    """Joins the processes that a launcher has started, with the backend that has them."""
    import keras

    from keras_vit.training import distribution

    if keras.backend.backend() == "jax":
        distribution.join_processes()


def check_files(confusion, figure):
    """Raises `ValueError` for what could not be written at the end of a long evaluation."""
    from keras_vit.inspection.figures.drawing import check_matplotlib

    if figure is not None:
        check_matplotlib()
    for flag, path, suffix in (
        ("--confusion", confusion, ".csv"),
        ("--confusion-figure", figure, ".png"),
    ):
        if path is None:
            continue
        if path.suffix != suffix or path.is_dir() or not path.parent.is_dir():
            raise ValueError(
                f"`{flag}` must be a {suffix} file in a folder that exists. Received: {str(path)!r}"
            )


def check_same_classes(model_names, data_names, must_be_equal):
    """Check that a model and a dataset mean the same classes by the same numbers.

    Names of other projects, and ImageNet's words and synsets, may be spelled in another way; then
    a warning is logged.

    Raises:
        ValueError: if names that must be equal are not, or a class has another number.
    """
    if len(model_names) != len(data_names):
        hint = ""
        if set(model_names) < set(data_names):
            hint = f"; `--classes {shlex.join(model_names)}` takes the model's alone"
        raise ValueError(
            f"The dataset must have the model's {len(model_names)} classes. "
            f"Received: {len(data_names)} classes{hint}"
        )
    pairs = list(zip(model_names, data_names, strict=True))
    known = set(data_names)
    moved = any(name != other and name in known for name, other in pairs)
    if moved or (must_be_equal and model_names != data_names):
        raise ValueError(
            f"The dataset must have the model's classes {model_names!r:.500}, in this order. "
            f"Received: {data_names!r:.500}"
        )
    has_synsets = all(re.fullmatch(r"n\d{8}", name) for name in data_names)
    different = next((pair for pair in pairs if pair[0] != pair[1]), None)
    if different and not has_synsets:
        logging.getLogger("keras_vit").warning(
            "the classes of the model and of the dataset have different names and are compared by "
            "their order: %r is %r",
            *different,
        )


def class_rows(matrix, names):
    """One row of strings for each class."""
    from keras_vit.evaluation.metrics import most_frequent_mistakes

    mistakes = zip(*most_frequent_mistakes(matrix), strict=True)
    for index, (mistake, count) in enumerate(mistakes):
        images = matrix[index].sum()
        yield (
            names[index],
            f"{images}",
            f"{matrix[index, index] / images:.2%}" if images else "-",
            f"{names[mistake]} ({count})" if count else "-",
        )


def write_confusion(matrix, names, path):
    """Writes the matrix as CSV: a row a class, a column a prediction, the first of each names."""
    import csv

    from keras_vit.core.files import replacing

    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["class", *names])
        writer.writerows([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
