"""Open a trained model with the record of its run, and load the data to evaluate it on."""

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
from keras_vit.experiments.reported import check_row_fits, find_reported, reported_of_checkpoint
from keras_vit.models.image_model import image_spec_of
from keras_vit.training.resumable_fit import EXCLUDED_FILE


def open_trained(
    source: str | os.PathLike, image_size: int | tuple[int, int] | None = None
) -> "TrainedModel":
    """Load a model, and `run.json` of the run that trained it.

    Args:
        source: a run's directory (for its best model), a `.keras` file, or a checkpoint as in
            `keras_vit.from_checkpoint`.
        image_size: int or `(height, width)` to resize the model to; `None` to keep its size.

    Returns:
        A `TrainedModel`.

    Raises:
        ValueError: if the model does not exist.

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
    """A loaded model, with the contents of `run.json`.

    Args:
        source: the argument of `open_trained`.
        path: `pathlib.Path` of the model's file.
        run: contents of `run.json` next to the model, a dictionary; empty if there is no file.
        model: the `keras.Model`.
    """

    source: str
    path: pathlib.Path
    run: dict
    model: keras.Model

    def load(self, data=None, split="test", *, classes=None, **options):
        """Load a dataset to evaluate the model on, and check that it has the model's classes.

        The run's dataset is loaded with the same splits, classes and excluded images as in the run.
        Images are resized as the model's `ImageSpec` says, unless `central_crop_from` is given.
        They are turned upright if the run did so, or if `upright` is true. Each of several
        processes loads its share.

        Args:
            data: name of a dataset, as in `keras_vit.data.load`; `None` for the run's dataset.
            split: as in `keras_vit.data.load`.
            classes: names of the classes to keep; by default all classes or, for the run's dataset,
                the classes of the run.
            **options: as in `keras_vit.data.load`.

        Returns:
            A dataset, as `keras_vit.data.load` returns it.

        Raises:
            ValueError: if `data` is `None` and the model has no run, or the classes of the model
                and the dataset differ; or as in `keras_vit.data.load`.
        """
        is_own = data is None or absolute_name(data) == self.run.get("data")
        has_excluded = is_own and self.run.get("exclude") is not None
        spec = image_spec_of(self.model)
        spec = spec.of_whole_image() if options.get("central_crop_from") else spec
        options.setdefault("image_spec", spec)
        if self.is_upright:
            options["upright"] = True
        dataset = load(
            self.name_of(data),
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
                "`data` must be given for a model that is not in a run's directory. Received: None"
            )
        return name

    def warn_if_trained_on(self, source):
        """Log a warning if the model was trained on the images of a `Source`."""
        trained_on = self.run.get("images", {}).get("training")
        if trained_on is not None and trained_on == source.digest():
            logging.getLogger("keras_vit").warning(
                "the model was trained on these images: on new images, it may be less accurate"
            )

    def find_reported(self, data, num_classes, compare=None):
        """Return the published accuracy to compare a measured accuracy with.

        Args:
            data: as in `load`.
            num_classes: number of classes of the dataset.
            compare: name of a row, as in `find_reported`; `None` for the row of the published
                checkpoint that the model was loaded from, if it has a row.

        Returns:
            A `Reported`, or `None`.

        Raises:
            ValueError: if the named row is for another model or dataset.
        """
        data = data or self.run.get("data")
        if compare is None:
            return reported_of_checkpoint(self.source, self.model, data)
        row = find_reported(compare)
        check_row_fits(row, self.model, data, num_classes)
        return row
