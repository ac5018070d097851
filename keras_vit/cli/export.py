"""`keras-vit export`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass
class Export:
    """Write a trained model as a SavedModel for TF Serving, preprocessing and labels included.

    Example: keras-vit export runs/photos serving/photos
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`."""
    directory: Annotated[pathlib.Path, tyro.conf.Positional]
    """The model's directory; each export is a new version in it."""
    version: int | None = None
    """Number of the version; the next free one by default."""
    image_size: tuple[int, ...] | None = None
    """Resize the model for this image size, or tell it for a file that does not: one number, or
    height and width."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Exports, and says where to."""
        from keras_vit.cli.convert import as_image_size, class_names_of
        from keras_vit.serving.export import export
        from keras_vit.training.run import load_trained

        model = load_trained(self.model, as_image_size(self.image_size))
        version = "auto" if self.version is None else self.version
        path = export(model, self.directory, version, class_names_of(model, self.model))
        print(f"Exported to {path}")
        print(f"Next: keras-vit predict {self.directory} IMAGE")
