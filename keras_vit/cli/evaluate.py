"""`keras-vit evaluate`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


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
    central_crop_from: int | None = None
    """Resize the smaller side to so many pixels and cut out the middle, as big_vision does. The
    original resizes the whole image."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints the metrics."""
        from keras_vit.cli.convert import as_image_size
        from keras_vit.data.datasets import load
        from keras_vit.evaluation.classification import evaluate
        from keras_vit.training.run import find_model, load_trained, read_run

        model = load_trained(self.model, as_image_size(self.image_size))
        run = read_run(find_model(self.model))
        name = self.data or run.get("data")
        if name is None:
            raise ValueError(
                "`--data` must be given for a model outside of a run's directory. "
                "Received: no --data"
            )
        classes = self.classes or (run.get("classes") if self.data is None else None)
        dataset = load(
            name,
            self.split,
            image_size=model.input_shape[1:3],
            batch_size=self.batch_size,
            classes=classes,
            data_dir=self.data_dir,
            central_crop_from=self.central_crop_from,
            max_skipped=self.max_skipped,
        )
        names = run.get("class_names")
        if names is not None and names != list(dataset.class_names):
            raise ValueError(
                f"The dataset must have the run's classes {names}. "
                f"Received: {list(dataset.class_names)}"
            )
        for metric, value in evaluate(model, dataset).items():
            print(f"{metric}: {value:.4f}" if isinstance(value, float) else f"{metric}: {value}")
        if len(dataset.skipped):
            print(dataset.skipped)
