"""The lines that `keras-vit predict` prints, one for each image."""

import dataclasses
import logging
import sys

# Lines of images are printed as soon as so many are predicted.
_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class Line:
    """The classes of an image.

    Args:
        image: its path or id.
        classes: list of `(name, probability)`, the most likely first.
        error: why it has none, or `None`.
    """

    image: str
    classes: list
    error: str | None = None


def print_lines(predictor, images, top):
    """Print a line for each image of `ImageRows`, and yield its `Line`."""
    from keras_vit.core.text import printable

    for found in predicted(predictor, images):
        for index, id in enumerate(found["id"]):
            if reason := found["error"][index]:
                print(f"keras-vit: error: {printable(id)}: {reason}", file=sys.stderr)
                yield Line(id, [], reason)
            else:
                classes = _classes(predictor.model, found, index, top)
                print_classes(id, classes)
                yield Line(id, classes)


def predicted(predictor, images):
    """Yield the columns of batch after batch of `ImageRows`."""
    for start in range(0, images.num_images, _AT_ONCE):
        yield predictor(images.columns(start, min(start + _AT_ONCE, images.num_images)))


def tell_left_out(images):
    """Log how many files were left out, by reason."""
    from keras_vit.data.sources.folder import describe_left_out

    if images.left_out:
        logging.getLogger("keras_vit").info("%s", describe_left_out(images.left_out))


def print_classes(image, classes):
    """Print a line with the classes of an image, `[(name, probability), ...]`."""
    from keras_vit.core.text import printable

    named = [f"{printable(name)} {probability:.1%}" for name, probability in classes]
    print(printable(str(image)), *(named or ["-"]), sep="  ")


def _classes(model, found, index, top):
    """Return the classes of one image with their probabilities, the most likely first."""
    from keras_vit.serving.predictor import class_names, ranked

    if model.thresholds is not None:
        return list(zip(found["prediction"][index], found["probability"][index], strict=True))
    probabilities = found["probabilities"][index]
    names = class_names(model, len(probabilities))
    return [(names[number], probabilities[number]) for number in ranked(probabilities, top)]
