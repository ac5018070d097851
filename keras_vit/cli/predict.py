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

    model: Annotated[str, tyro.conf.Positional]
    """An export's or a run's directory, a .keras file, or a checkpoint as in `convert`."""
    images: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
    """Image files."""
    top: int = 3
    """Classes to print for each image, the most likely first."""
    image_size: tuple[int, ...] | None = None
    """Resize the model for this image size, or tell it for a file that does not: one number, or
    height and width."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints a line for each image."""
        from keras_vit.cli.convert import as_image_size
        from keras_vit.serving.predict import read_image

        if not self.images or self.top < 1:
            raise ValueError(
                "`images` must name at least one file, and `--top` be positive. "
                f"Received: {len(self.images)} images, top={self.top}"
            )
        predict = load_predictor(self.model, as_image_size(self.image_size))
        for image in self.images:
            print_classes(image, predict(read_image(image))[: self.top])


def print_classes(image, classes):
    """A line with the file and its classes, `(name, probability)` each."""
    print(image, *(f"{name} {probability:.1%}" for name, probability in classes), sep="  ")


def load_predictor(path, image_size):
    """A predictor from an export, a `.keras` file, a run's directory or a checkpoint."""
    from keras_vit.cli.convert import class_names_of
    from keras_vit.serving.predict import export_predictor, find_export, keras_predictor
    from keras_vit.training.run import load_trained

    exported = find_export(path)
    if exported is not None:
        if image_size is not None:
            raise ValueError(
                "`--image-size` must not be given for an export, which has one. "
                f"Received: {image_size}"
            )
        return export_predictor(exported)
    model = load_trained(path, image_size)
    return keras_predictor(model, class_names_of(model, path))
