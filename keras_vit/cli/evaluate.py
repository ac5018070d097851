"""`keras-vit evaluate`: measure a model on a dataset."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from keras_vit.cli.command import Reading, check_new_file, plain_table
from keras_vit.core.text import mean_and_deviation, printable


@dataclasses.dataclass
class Evaluate(Reading):
    """Measure a trained model's accuracy on a dataset.

    Example: keras-vit evaluate runs/photos --data folder:photos --split test

    Args:
        model: A run's directory (its best model), a .keras file, or a checkpoint as in `convert`;
            or a directory of `keras-vit train --seeds`, to evaluate all runs in it.
        data: dataset as in `keras-vit train`; by default the data of the run.
        split: train, validation or test.
        per_class: print the number of images, the accuracy and the most frequent mistake of each
            class; for multi-label data, the average precision, F1 and threshold of each class.
        confusion: new CSV file of the confusion matrix: one row per class, one column per
            prediction.
        confusion_figure: new PNG file of a figure of the confusion matrix.
        compare: name of the reported accuracy to print next to the test accuracy, such as
            ViT_L16/jft300m/cifar10 (Table 2 of the paper) or a name of `keras-vit checkpoints`. By
            default the accuracy reported for the model, if it is a published checkpoint.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    data: str | None = None
    split: str = "test"
    per_class: bool = False
    confusion: pathlib.Path | None = None
    confusion_figure: pathlib.Path | None = None
    compare: str | None = None

    def run(self):
        """Print the metrics of a model, or of the runs of several seeds and their means."""
        import keras

        from keras_vit.experiments.sweep import finished_runs
        from keras_vit.inspection.figures.drawing import check_matplotlib
        from keras_vit.training import distribution

        if keras.backend.backend() == "jax":
            distribution.join_processes()
        # Check the paths before hours of evaluation.
        for path, suffix in ((self.confusion, ".csv"), (self.confusion_figure, ".png")):
            if path is not None:
                check_new_file(path, suffix)
        if self.confusion_figure is not None:
            check_matplotlib()
        runs, summaries = finished_runs(self.model), []
        if not runs:
            self._evaluate()
            return
        if self.confusion or self.confusion_figure:
            raise ValueError(
                "`--confusion` and `--confusion-figure` need a single run. Received: "
                f"{str(self.model)!r} with {', '.join(run.name for run in runs)}"
            )
        print_once = print if distribution.is_first_process() else lambda *_: None
        for run in runs:
            print_once(f"{run.name}:")
            summaries.append(dataclasses.replace(self, model=str(run))._evaluate())
        print_once(f"mean of {len(runs)} runs:")
        for name in summaries[0]:
            if name != "images":
                print_once(f"{name}: {mean_and_deviation([s[name] for s in summaries], 4)}")

    def _evaluate(self):
        """Print the metrics of a model, and return them."""
        from keras_vit.cli.data import print_left_out
        from keras_vit.evaluation.classification import predictions
        from keras_vit.experiments.model_and_data import open_trained
        from keras_vit.training import distribution

        trained = open_trained(self.model, self.image_size)
        names = ("batch_size", "classes", "data_dir", "central_crop_from", "max_skipped", "upright")
        batches = trained.load(
            self.data, self.split, **{name: getattr(self, name) for name in names}
        )
        dataset, is_first = batches.info.dataset, distribution.is_first_process()
        self._check(trained, batches)
        print_left_out(batches.info.left_out)
        trained.warn_if_trained_on(dataset.source)
        if dataset.source.has_masks:
            return self._evaluate_masks(trained.model, dataset.source)
        reported = None
        if self.split == "test":
            num_classes = len(batches.class_names)
            reported = trained.find_reported(self.data, num_classes, self.compare)
        elif self.compare is not None:
            raise ValueError(f"`compare` needs the test split. Received: split={self.split!r}")
        predicted = predictions(trained.model, batches)
        if len(batches.info.skipped):
            # Each process prints the images that it skipped.
            print(batches.info.skipped)
        if is_first:
            self._print(predicted, reported, trained.model.input_shape[1:3])
        return predicted.summary()

    def _check(self, trained, batches):
        """Refuse options that need one class per image."""
        dataset = batches.info.dataset
        is_multilabel = getattr(trained.model, "thresholds", None) is not None
        source, rank = dataset.source, batches.element_spec[1].shape.rank
        if rank == 1:
            return
        names = ["confusion", "confusion_figure"]
        if source.has_masks or source.has_values or is_multilabel:
            names.append("compare")
        if rank == 2 and not is_multilabel:
            names.append("per_class")
        refused = [name for name in names if getattr(self, name)]
        if dataset.source.has_masks and dataset.shard[1] > 1:
            refused.append("several processes")
        if refused:
            raise ValueError(
                f"{', '.join(names)} need one class per image, and masks need a single process. "
                f"Received: {', '.join(refused)} for {trained.name_of(self.data)!r}"
            )

    def _evaluate_masks(self, model, source):
        """Print the metrics of a segmenter, and return them."""
        from keras_vit.evaluation.segmentation import evaluate_segmentation

        options = {"batch_size": self.batch_size, "max_skipped": self.max_skipped}
        metrics = evaluate_segmentation(model, source, **options)
        classes = zip(metrics.class_names, metrics.iou, strict=True) if self.per_class else ()
        for name, value in [*metrics.summary().items(), *((f"iou of {n}", v) for n, v in classes)]:
            print(f"{printable(name)}: {value if name == 'images' else f'{value:.4f}'}")
        return metrics.summary()

    def _print(self, predicted, reported, image_size):
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
            from keras_vit.inspection.figures.charts import draw_confusion

            draw_confusion(matrix, names, self.confusion_figure)
            print(f"confusion matrix: {self.confusion_figure}")
