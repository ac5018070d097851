"""Class probabilities for image files, from a Keras model or from its export.

Each function returns a predictor: a function of an encoded image (the bytes of a file) that returns
`[(class name, probability), ...]`, the most likely first.
"""

import pathlib

import numpy as np
import scipy.special
from keras import ops

from keras_vit.models.head import has_zero_head, warn_of_zero_head
from keras_vit.models.surgery import check_classifier
from keras_vit.serving.labels import labels_of
from keras_vit.serving.versions import FILES, MODEL_FILES, is_version, version_folders


def keras_predictor(model, class_names=None):
    """A predictor from a Keras model.

    Args:
        model: a classifier that returns logits.
        class_names: names of the classes; `None` for their numbers.

    Returns:
        A predictor.

    Raises:
        ValueError: if the model is not a classifier that returns logits.
    """
    from keras_vit.serving.loaded import preprocess_files

    check_classifier(model)
    is_untrained = has_zero_head(model)

    def predict(encoded):
        images = preprocess_files([encoded], model.input_shape[1:3])
        logits = model(ops.convert_to_tensor(images), training=False)
        return ranked(_softmax(ops.convert_to_numpy(logits)[0]), class_names, is_untrained)

    return predict


def export_predictor(version):
    """A predictor from one version of an export, of any format.

    Args:
        version: path of the version's directory.

    Returns:
        A predictor.

    Raises:
        ValueError: if there is no export of a classifier.
    """
    from keras_vit.serving.loaded import load_export

    answer, class_names = load_export(version), labels_of(version)
    return lambda encoded: ranked(_softmax(answer([encoded])[0]), class_names)


def ranked(probabilities, class_names, is_untrained=False):
    """The classes with their probabilities, the most likely first.

    Raises:
        ValueError: if there are not as many names as probabilities, one probability alone, or NaN.
    """
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
    return [(names[index], float(probabilities[index])) for index in order]


def find_export(path):
    """The version of an export that a path means: itself or its newest; `None` if it is neither.

    Raises:
        ValueError: if there are versions, but the newest has no model or two directories.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_file() and path.name in FILES:
        return path.parent
    if is_version(path):
        return path
    # As TF Serving reads them: "007" is version 7, and the newest is served or none.
    versions = version_folders(path)
    if not any(is_version(folder) for _, folder in versions):
        return None
    newest = [folder for number, folder in versions if number == versions[-1][0]]
    if len(newest) > 1 or not is_version(newest[0]):
        reason = "of the same number" if newest[1:] else f"without {', '.join(MODEL_FILES)}"
        raise ValueError(
            "The newest version of an export must be one directory with a model; another version "
            f"is named by its path. Received: {', '.join(map(str, newest))}, {reason}"
        )
    return newest[0]


def _softmax(logits):
    return scipy.special.softmax(logits.astype("float64"))


def read_image(path):
    """The bytes of an image file, checked to be one that can be decoded.

    A photograph that was taken with a turned camera is turned upright, as every viewer shows it.
    Exports and datasets take pixels as they are stored, so it comes as a PNG of the same pixels.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
    import tensorflow as tf

    from keras_vit.data.images.decoding import read_orientation, turn_upright

    encoded, image = read_stored(path)
    orientation = read_orientation(encoded)
    return (
        encoded if orientation == 1 else tf.io.encode_png(turn_upright(image, orientation)).numpy()
    )


def read_stored(path):
    """The bytes of an image file as they are, and its pixels, a uint8 tensor.

    Raises:
        ValueError: if the file cannot be read or is not an image.
    """
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
