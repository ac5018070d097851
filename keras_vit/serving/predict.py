"""Class probabilities for image files, from a Keras model or from its export.

Each function returns a predictor: a function of an encoded image (the bytes of a file) and perhaps
`top` that returns `[(class name, probability), ...]`, the `top` most likely first. If the model has
thresholds, these are all labels with a probability above theirs.
"""

import pathlib

import numpy as np
import scipy.special
from keras import ops

from keras_vit.core.several_labels import check_thresholds
from keras_vit.models.base import resizing_of
from keras_vit.models.parts import check_classifier, stored_size
from keras_vit.models.stem_and_head import has_zero_head, warn_of_zero_head
from keras_vit.serving.formats import FORMATS, file_names
from keras_vit.serving.labels import labels_of
from keras_vit.serving.versions import is_version, version_folders


def keras_predictor(model, class_names=None):
    """Make a predictor from a Keras model.

    By default the names of the classes are those that the model carries, or their numbers.
    """
    from keras_vit.serving.loaded import preprocess_files

    check_classifier(model)
    is_untrained = has_zero_head(model)
    class_names = class_names or getattr(model, "class_names", None)

    def predict(encoded, top=None):
        images = preprocess_files([encoded], stored_size(model), resizing_of(model))
        logits = ops.convert_to_numpy(model(ops.convert_to_tensor(images), training=False))[0]
        thresholds = getattr(model, "thresholds", None)
        return _ranked(logits, class_names, thresholds, top, is_untrained)

    return predict


def export_predictor(version):
    """Make a predictor from the directory of one version of an export, of any format."""
    from keras_vit.serving.loaded import load_export, recorded

    answer, class_names = load_export(version), labels_of(version)
    _, thresholds = recorded(version)
    return lambda encoded, top=None: _ranked(answer([encoded])[0], class_names, thresholds, top)


def _ranked(logits, class_names, thresholds, top, is_untrained=False):
    """Return the classes with their probabilities, the most likely first."""
    activation = scipy.special.softmax if thresholds is None else scipy.special.expit
    probabilities = activation(logits.astype("float64"))
    if len(probabilities) < 2:
        raise ValueError(
            "A model must have two classes or more to be predicted: the softmax of one logit is "
            f"always 1. Received: a model with {len(probabilities)} output"
        )
    if class_names and len(class_names) != len(probabilities):
        raise ValueError(
            "A model must have as many outputs as its classes have names. "
            f"Received: {len(probabilities)} outputs and {len(class_names)} names"
        )
    if not np.isfinite(probabilities).all():
        raise ValueError("A model must return finite logits. Received: NaN or infinity")
    if is_untrained or np.ptp(probabilities) == 0:
        warn_of_zero_head(len(probabilities))
    names = class_names or [str(index) for index in range(len(probabilities))]
    order = np.argsort(-probabilities, kind="stable")
    if thresholds is not None:
        thresholds = check_thresholds(thresholds, len(probabilities))
        order, top = [index for index in order if probabilities[index] > thresholds[index]], None
    return [(names[index], float(probabilities[index])) for index in order[:top]]


def find_export(path):
    """Return the directory of the version of an export that a path means, or `None`.

    Args:
        path: path of a version, of a file that identifies its format, or of a directory of
            versions, whose newest is meant.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_file() and any(path.name == row.file_name for row in FORMATS.values()):
        return path.parent
    if is_version(path):
        return path
    # Like TF Serving: "007" is version 7, and if the newest cannot be served, none is.
    versions = version_folders(path)
    if not any(is_version(folder) for _, folder in versions):
        return None
    newest = [folder for number, folder in versions if number == versions[-1][0]]
    if len(newest) > 1 or not is_version(newest[0]):
        reason = "of the same number" if newest[1:] else f"without {file_names()}"
        raise ValueError(
            "The newest version of an export must be one directory with a model; to use another "
            f"version, give its path. Received: {', '.join(map(str, newest))}, {reason}"
        )
    return newest[0]


def read_image(path):
    """Return the bytes of an image file, after checking that it can be decoded.

    Exports and datasets take pixels as they are stored and ignore the orientation in the metadata.
    A photograph that must be rotated to be upright is therefore returned as a PNG of the rotated
    pixels.

    Args:
        path: path of the file.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
    import tensorflow as tf

    from keras_vit.data.images.decoding import read_orientation, turn_upright

    encoded, image = read_stored(path)
    orientation = read_orientation(encoded)
    if orientation == 1:
        return encoded
    return tf.io.encode_png(turn_upright(image, orientation)).numpy()


def read_stored(path):
    """Return the bytes of an image file as they are, and its pixels, a uint8 tensor."""
    import tensorflow as tf

    from keras_vit.data.images.decoding import MAX_PIXELS, decode, explain

    try:
        encoded = pathlib.Path(path).expanduser().read_bytes()
        return encoded, decode(encoded)
    except OSError as error:
        raise ValueError(
            f"`images` must be files that can be read. Received: {str(path)!r} ({error.strerror})"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`images` must be complete JPEG, PNG, GIF, BMP or still WebP files of at most "
            f"{MAX_PIXELS} pixels. "
            f"Received: {str(path)!r}, which is not ({explain(error, encoded)})"
        ) from error
