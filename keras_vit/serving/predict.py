"""Class probabilities for image files, from a Keras model or from its export."""

import pathlib

import numpy as np

from keras_vit.training.fit import load_model
from keras_vit.training.run import find_model, read_run


def load_predictor(path):
    """Loads whatever can classify an image file.

    Args:
        path: a `.keras` file, a run's directory, or the directory of an export or of one version
            of it.

    Returns:
        A function of an image file's path that returns `[(class name, probability), ...]`, the
        most likely first.

    Raises:
        ValueError: if the path is none of these; and, when called, if the file is not an image.
    """
    path = pathlib.Path(path).expanduser()
    saved_model = find_saved_model(path)
    if saved_model is not None:
        probabilities, names = _from_saved_model(saved_model)
    else:
        probabilities, names = _from_keras(path)

    def predict(image):
        scores = probabilities(_read(image))
        order = np.argsort(-scores, kind="stable")
        return [(names[index] if names else str(index), float(scores[index])) for index in order]

    return predict


def find_saved_model(path):
    """The SavedModel that a path means: itself or its newest version, or `None`."""
    if (path / "saved_model.pb").is_file():
        return path
    versions = [entry for entry in path.glob("*/saved_model.pb") if entry.parent.name.isdigit()]
    return max((entry.parent for entry in versions), key=lambda entry: int(entry.name), default=None)


def _from_saved_model(path):
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    labels = path / "assets.extra" / "labels.txt"
    names = labels.read_text().splitlines() if labels.is_file() else None

    def probabilities(encoded):
        # The module must outlive this call: its signature does not hold the variables.
        assert loaded is not None
        return serve(image_bytes=tf.constant([encoded]))["probabilities"][0].numpy()

    return probabilities, names


def _from_keras(path):
    from keras import ops

    from keras_vit.data.images import decode, evaluation_image

    model = load_model(path)

    def probabilities(encoded):
        image = evaluation_image(decode(encoded), model.input_shape[1:3])
        logits = model(ops.convert_to_tensor(image.numpy()[None]), training=False)
        return ops.convert_to_numpy(ops.softmax(logits))[0]

    return probabilities, read_run(find_model(path)).get("class_names")


def _read(image):
    import tensorflow as tf

    from keras_vit.data.images import decode

    try:
        encoded = pathlib.Path(image).read_bytes()
    except OSError as error:
        raise ValueError(
            f"`images` must be files that can be read. Received: {str(image)!r} ({error.strerror})"
        ) from error
    try:
        decode(encoded)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`images` must be complete JPEG, PNG, GIF, BMP or WebP files. "
            f"Received: {str(image)!r}, which is not"
        ) from error
    return encoded
