"""A trained model, and the data that it is evaluated on: those of its run, or others."""

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
    """Load a model, with what its run recorded.

    Args:
        source: a run's directory (its best model), a `.keras` file, or whatever
            `keras_vit.from_checkpoint` takes.
        image_size: int or `(height, width)` to resize the model to; `None` for its own.

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
    """A loaded model, and what its run recorded.

    Args:
        source: what it was loaded from.
        path: `pathlib.Path` of its file.
        run: dictionary of its run's `run.json`; empty for a model without a run.
        model: the `keras.Model`.
    """

    source: str
    path: pathlib.Path
    run: dict
    model: keras.Model

    def load(self, data=None, split="test", *, classes=None, **options):
        """Load the images to evaluate the model on, and check that they have its classes.

        Those of its own run are divided as the run divided them, with the same classes, and without
        the images that it left out. They are resized as the model says, unless they are cropped,
        and turned upright if the run did so, or if `upright` is true. A process among several loads
        its share.

        Args:
            data: name of a dataset, as in `keras_vit.data.load`; `None` for the run's.
            split: as in `keras_vit.data.load`.
            classes: names of the classes to keep; by default those of the run for its own data.
            **options: as in `keras_vit.data.load`.

        Returns:
            A dataset, as of `keras_vit.data.load`.

        Raises:
            ValueError: if there is no name and no run, the classes of model and dataset differ, or
                as `keras_vit.data.load`.
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
        """Return the name of a dataset; that of the run for `None`."""
        name = data or self.run.get("data")
        if name is None:
            raise ValueError(
                "`data` must be given for a model outside of a run's directory. Received: data=None"
            )
        return name

    def warn_if_trained_on(self, source):
        """Log a warning if the images of a `Source` are those that the model was trained on."""
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
            compare: name of a row, as in `find_reported`; `None` to find that of a published file.

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
