"""Open a trained model together with its run, and load the data to evaluate it on."""

import dataclasses
import logging
import os
import pathlib

import keras

from keras_vit.checkpoints.named_models import load_trained
from keras_vit.checkpoints.run_files import find_model, run_of
from keras_vit.data.pipeline import load
from keras_vit.data.processes import process
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.evaluation.classification import check_same_classes
from keras_vit.experiments.reported import check_meant, find_reported, reported_of_checkpoint
from keras_vit.models.image_model import image_spec_of
from keras_vit.training.resumable_fit import EXCLUDED_FILE


def open_trained(
    source: str | os.PathLike, image_size: int | tuple[int, int] | None = None
) -> "TrainedModel":
    """Load a model, with the record of its run.

    Args:
        source: a run's directory (for its best model), a `.keras` file, or a checkpoint as in
            `keras_vit.from_checkpoint`.
        image_size: int or `(height, width)` to resize the model to; `None` to keep its size.

    Returns:
        A `TrainedModel`.

    Raises:
        ValueError: if there is no such model.

    Example:
    >>> keras_vit.ViT_Ti16(num_classes=10, image_size=16).save(tmp_path / "m.keras")
    >>> trained = open_trained(tmp_path / "m.keras")
    >>> trained.load("digits", "test", batch_size=64).info.num_examples
    359
    """
    path = find_model(source)
    return TrainedModel(source, path, run_of(path), load_trained(source, image_size))


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A loaded model, with the record of its run.

    Args:
        source: the argument of `open_trained`.
        path: `pathlib.Path` of the model's file.
        run: contents of the run's `run.json`, a dictionary; empty for a model without a run.
        model: the `keras.Model`.
    """

    source: str
    path: pathlib.Path
    run: dict
    model: keras.Model

    def load(self, data=None, split="test", *, classes=None, **options):
        """Load the images to evaluate the model on, and check that they have its classes.

        The dataset of the run has the splits, the classes and the excluded images of the run.
        Images are resized as the model's `ImageSpec` says, unless they are cropped, and turned
        upright if the run did so, or if `upright` is true. Each of several processes loads its
        share.

        Args:
            data: name of a dataset, as in `keras_vit.data.load`; `None` for the run's dataset.
            split: as in `keras_vit.data.load`.
            classes: names of the classes to keep; by default all, or the run's for its dataset.
            **options: as in `keras_vit.data.load`.

        Returns:
            A dataset, as `keras_vit.data.load` returns it.

        Raises:
            ValueError: if there is neither a name nor a run, or the classes of the model and the
                dataset differ; or as in `keras_vit.data.load`.
        """
        name = self.name_of(data)
        is_own = data is None or absolute_name(data) == self.run.get("data")
        has_excluded = is_own and self.run.get("exclude") is not None
        if not options.get("central_crop_from"):
            options.setdefault("image_spec", image_spec_of(self.model))
        if self.is_upright:
            options["upright"] = True
        dataset = load(
            name,
            split,
            image_size=self.model.input_shape[1:3],
            classes=classes or (self.run.get("classes") if is_own else None),
            shard=process(),
            exclude=self.path.with_name(EXCLUDED_FILE) if has_excluded else (),
            **options,
        )
        names = getattr(self.model, "class_names", None)
        if names is not None:
            check_same_classes(list(names), list(dataset.class_names), self.path.suffix == ".keras")
        return dataset

    @property
    def is_upright(self):
        """Whether the run turned photographs upright."""
        return self.run.get("recipe", {}).get("upright", False)

    def name_of(self, data):
        """Return the name of a dataset; `None` stands for the run's dataset."""
        name = data or self.run.get("data")
        if name is None:
            raise ValueError(
                "`data` must be given for a model outside of a run's directory. Received: data=None"
            )
        return name

    def warn_if_trained_on(self, source):
        """Log a warning if the model was trained on the images of a `Source`."""
        trained_on = self.run.get("images", {}).get("training")
        if trained_on is not None and trained_on == source.digest():
            logging.getLogger("keras_vit").warning(
                "the model was trained on these images: the metrics are not those of new images"
            )

    def find_reported(self, data, num_classes, compare=None):
        """Return the reported accuracy on a test split to compare with.

        Args:
            data: as in `load`.
            num_classes: number of classes of the dataset.
            compare: name of a row, as in `find_reported`; `None` for the row of the published file
                that the model was loaded from.

        Returns:
            A `Reported`, or `None`.

        Raises:
            ValueError: if the named row is for another model or dataset.
        """
        data = data or self.run.get("data")
        if compare is None:
            return reported_of_checkpoint(self.source, self.model, data)
        row = find_reported(compare)
        check_meant(row, self.model, data, num_classes)
        return row
