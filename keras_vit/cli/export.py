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

    model: Annotated[pathlib.Path, tyro.conf.Positional]
    """A .keras file or a run's directory (its best model)."""
    directory: Annotated[pathlib.Path, tyro.conf.Positional]
    """The model's directory; each export is a new version in it."""
    version: int | None = None
    """Number of the version; the next free one by default."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Exports, and says where to."""
        from keras_vit.models.files import load_model
        from keras_vit.serving.export import export
        from keras_vit.training.run import find_model, read_run

        source = find_model(self.model)
        version = "auto" if self.version is None else self.version
        class_names = read_run(source).get("class_names")
        path = export(load_model(source), self.directory, version, class_names)
        print(f"Exported to {path}")
        print(f"Next: keras-vit predict {self.directory} IMAGE")
