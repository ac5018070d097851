"""`keras-vit predict`."""

import dataclasses
import logging
import pathlib
import sys
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
    """Classes to print for each image, the most likely first; a model with thresholds prints all
    labels above theirs."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""

    def run(self):
        """Print a line for each image; non-images are reported, and the exit status is then 1."""
        from keras_vit.cli.convert import as_image_size

        check_images(self.images, self.top)
        predict = load_predictor(self.model, as_image_size(self.image_size))
        classify_all(self.images, lambda encoded: predict(encoded, self.top))


def check_images(images, top):
    """Check that there is something to do."""
    if not images:
        raise ValueError("`images` must name at least one file. Received: none")
    if top < 1:
        raise ValueError(f"`--top` must be positive. Received: top={top}")


def classify_all(images, classify):
    """Print a line for each image; non-images are reported, and the exit status is then 1.

    `classify` is a function of the bytes of a file that returns `[(class name, probability), ...]`,
    or `None` if a server cannot decode it.
    """
    results = [_print_classes(image, classify) for image in images]
    if not all(results):
        sys.exit(1)


def _print_classes(image, classify):
    """Print the classes of an image, and return whether it could be decoded."""
    from keras_vit.core.text import printable
    from keras_vit.serving.predict import read_image

    try:
        encoded = read_image(image)
    except ValueError as error:
        print(f"keras-vit: error: {error}", file=sys.stderr)
        return False
    classes = classify(encoded)
    if classes is None:
        print(f"keras-vit: error: the server cannot decode {image}", file=sys.stderr)
        return False
    named = (f"{printable(name)} {probability:.1%}" for name, probability in classes)
    print(image, *(list(named) or ["-"]), sep="  ")
    return True


def load_predictor(path, image_size):
    """Make a predictor from an export, a `.keras` file, a run's directory or a checkpoint."""
    from keras_vit.checkpoints.trained.loading import class_names_of, load_trained
    from keras_vit.serving.predict import export_predictor, find_export, keras_predictor

    exported = find_export(path)
    if exported is not None:
        if image_size is not None:
            raise ValueError(
                "`--image-size` must not be given for an export, which has one. "
                f"Received: {image_size}"
            )
        other = pathlib.Path(path) / "model.safetensors"
        if other.exists():
            logging.getLogger("keras_vit").warning(
                "the export in %s is used, not the checkpoint in the same folder: for that give %s",
                *(path, other),
            )
        return export_predictor(exported)
    model = load_trained(path, image_size)
    return keras_predictor(model, class_names_of(model, path))
