"""`keras-vit predict`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass
class Predict:
    """Classify image files with a trained model or with its export.

    Example: keras-vit predict serving/photos cat.jpg dog.png
    """

    model: Annotated[pathlib.Path, tyro.conf.Positional]
    """A .keras file, a run's directory, or the directory of an export."""
    images: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
    """Image files."""
    top: int = 3
    """Classes to print for each image, the most likely first."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints a line for each image."""
        from keras_vit.serving.predict import read_image

        if not self.images or self.top < 1:
            raise ValueError(
                "`images` must name at least one file, and `--top` be positive. "
                f"Received: {len(self.images)} images, top={self.top}"
            )
        predict = load_predictor(self.model)
        for image in self.images:
            classes = predict(read_image(image))[: self.top]
            print(image, *(f"{name} {probability:.1%}" for name, probability in classes), sep="  ")


def load_predictor(path):
    """A predictor from an export, a `.keras` file or a run's directory."""
    from keras_vit.models.files import load_model
    from keras_vit.serving.predict import find_saved_model, keras_predictor, saved_model_predictor
    from keras_vit.training.run import find_model, read_run

    exported = find_saved_model(path)
    if exported is not None:
        return saved_model_predictor(exported)
    path = find_model(path)
    return keras_predictor(load_model(path), read_run(path).get("class_names"))
