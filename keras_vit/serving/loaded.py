"""What an export answers to image files, loaded again as a server would."""

import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.data.images.decoding import decode
from keras_vit.data.images.transforms import evaluation_image
from keras_vit.serving.versions import FILES


def load_export(version):
    """Loads a version of an export, of any format.

    Args:
        version: path of the version's directory.

    Returns:
        A function of a list of bytes, encoded images, that returns their logits, a float32 array
        `(images, num_classes)`. It raises `tf.errors.InvalidArgumentError` for an image that
        cannot be decoded, also where the export only flags it, and `ValueError` for logits that
        are not finite.

    Raises:
        ValueError: if there is no export, or a SavedModel that gives features alone.
    """
    version = pathlib.Path(version)
    answer = _load(version)

    def checked(encoded):
        logits = answer(encoded)
        if len(logits) != len(encoded) or not np.isfinite(logits).all():
            raise ValueError(
                "An export must give finite logits for each image. Received: "
                f"{str(version)!r}, which gives {len(logits)} for {len(encoded)} images, "
                f"{np.isfinite(logits).mean():.0%} of them finite"
            )
        return logits

    return checked


def _load(version):
    if (version / "saved_model.pb").is_file():
        return _load_saved_model(version)
    files = [version / name for name in FILES if (version / name).is_file()]
    if not files:
        raise ValueError(
            "`version` must be the directory of an export's version. "
            f"Received: version={str(version)!r}, without a SavedModel, {', '.join(FILES)}"
        )
    # It imports the format's own package.
    from keras_vit.serving.runners import load_runner

    run = load_runner(files[0])
    return lambda encoded: run(preprocess_files(encoded, run.image_shape[:2]))


def preprocess_files(encoded, image_size):
    """Images as a model takes them, from the bytes of their files.

    Args:
        encoded: iterable of bytes.
        image_size: `(height, width)`.

    Returns:
        A float32 array `(images, height, width, 3)` in [-1, 1].
    """
    return np.stack([evaluation_image(decode(file), image_size) for file in encoded])


def _load_saved_model(version):
    loaded = tf.saved_model.load(version)
    served = {
        _argument(function): name
        for name, function in loaded.signatures.items()
        if "logits" in function.structured_outputs
    }
    if not served:
        raise ValueError(
            "The SavedModel must have a signature that returns `logits`. "
            f"Received: {str(version)!r} with {', '.join(loaded.signatures)}"
        )
    # Rather bytes than preprocessed images, and these than pixels.
    argument = min(
        served, key=lambda argument: (tf.string, tf.float32, tf.uint8).index(argument[1])
    )
    # The function lives as long as what it was loaded with.
    return lambda encoded: _answer(loaded.signatures[served[argument]], argument, encoded)


def _argument(function):
    """Name and dtype of what a signature takes."""
    ((name, spec),) = function.structured_input_signature[1].items()
    return name, spec.dtype


def _answer(function, argument, encoded):
    """Logits of a signature; where the number of images is fixed, the last one fills it up."""
    name, dtype = argument
    fixed = function.structured_outputs["logits"].shape[0]
    # Pixels of different sizes cannot come together.
    step = 1 if dtype == tf.uint8 else fixed or len(encoded)
    found = []
    for start in range(0, len(encoded), step):
        part = encoded[start : start + step]
        inputs = part + part[-1:] * ((fixed or 0) - len(part))
        if dtype == tf.float32:
            size = function.structured_input_signature[1][name].shape[1:3]
            inputs = preprocess_files(inputs, size)
        elif dtype == tf.uint8:
            inputs = tf.stack([decode(file) for file in inputs])
        outputs = function(**{name: tf.constant(inputs)})
        _refuse_bad_images(outputs, part, start)
        found.append(outputs["logits"].numpy()[: len(part)])
    return np.concatenate(found)


def _refuse_bad_images(outputs, encoded, start):
    """Raise an error for an image that an export flags: the logits of such an image are zeros."""
    is_bad = outputs["is_bad"].numpy()[: len(encoded)] if "is_bad" in outputs else ()
    for index in np.flatnonzero(is_bad):
        # Raises an error with the reason.
        decode(encoded[index])
        raise tf.errors.InvalidArgumentError(
            None, None, f"The export cannot decode image {start + index}"
        )
