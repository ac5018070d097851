"""The columns that a model predicts for a column of images."""

import concurrent.futures
import os

import numpy as np
import scipy.special
import tensorflow as tf

from keras_vit.core.arguments import as_objects
from keras_vit.core.process import num_cores
from keras_vit.core.several_labels import check_thresholds
from keras_vit.data.images.decoding import decode, explain

_BLANK = np.zeros((32, 32, 3), "uint8")
_THREADS = concurrent.futures.ThreadPoolExecutor(2 * num_cores(), "decoding")


def predict_column(model, column, values, outputs, batch_size, on_images=None):
    """Predict a column of images, decoding those of the next step while the model computes.

    Args:
        model: a `LoadedModel`.
        column: name of the column; in `path` are paths of files.
        values: array or list of encoded images, of uint8 pixels, or of paths.
        outputs: as in `Predictor`.
        batch_size: images in one step of the model.
        on_images: function that is called with the number of images after each step.

    Returns:
        A dictionary of arrays: those of `outputs`, and `error`.
    """
    steps = [values[start : start + batch_size] for start in range(0, len(values), batch_size)]
    found, errors, ahead = [], [], []
    for step in (*steps, []):
        now, ahead = ahead, [_THREADS.submit(_prepare, model, column, value) for value in step]
        prepared = [future.result() for future in now]
        images = [image for image, reason in prepared if reason is None]
        if images:
            found.append(_checked(model.run(images)))
        errors += [reason for _, reason in prepared]
        if on_images is not None:
            on_images(len(prepared))
    # Without a sound image, a blank one has the shapes.
    found = found or [_first(0, model.run([model.prepare_pixels(_BLANK)]))]
    arrays = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    columns = {**arrays, **_classes(arrays.get("logits"), model)}
    is_sound = np.array([reason is None for reason in errors], bool)
    wanted = {name: _spread(columns[name], is_sound) for name in outputs}
    return {**wanted, "error": as_objects(errors)}


def _first(count, arrays):
    return {name: values[:count] for name, values in arrays.items()}


def _prepare(model, column, value):
    """Return a prepared image and `None`, or `None` and the reason why there is none."""
    if isinstance(value, dict):
        # How Hugging Face's datasets store an image: its bytes, or the path of a file.
        column = column if value.get("bytes") is not None else "path"
        value = value.get("path" if column == "path" else "bytes")
    # NaN is what pandas has for nothing.
    if value is None or isinstance(value, float):
        return None, "no image"
    if column == "path":
        value, reason = _read(value)
        if reason is not None:
            return None, reason
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return model.prepare_pixels(_as_rgb(value)), None
    encoded = bytes(value)
    try:
        return model.prepare(encoded), None
    except tf.errors.InvalidArgumentError as error:
        return None, _reason(error, encoded)


def _read(path):
    """Return the bytes of a file and `None`, or `None` and the reason why there are none.

    Other errors, such as those of a server, say nothing of the image and are raised.
    """
    try:
        return tf.io.read_file(os.fspath(path)).numpy(), None
    except tf.errors.NotFoundError:
        return None, "no such file"
    except tf.errors.FailedPreconditionError:
        return None, "a directory"
    except tf.errors.OpError as error:
        raise OSError(f"{path} could not be read: {explain(error)}") from error


def _reason(error, encoded):
    try:
        # The error of a graph has a stack trace in its message.
        decode(encoded)
    except tf.errors.OpError as eager:
        error = eager
    return explain(error, encoded)


def _as_rgb(pixels):
    pixels = np.asarray(pixels)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    is_rgb = pixels.ndim == 3 and pixels.size and pixels.shape[-1] in (1, 3, 4)
    if pixels.dtype != "uint8" or not is_rgb:
        raise ValueError(
            "An image must be the bytes of a file, or uint8 pixels (height, width) or "
            "(height, width, 1, 3 or 4). "
            f"Received: an array {pixels.shape} of {pixels.dtype}"
        )
    # Alpha is dropped, as when a file is decoded.
    return np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels[..., :3]


def _checked(arrays):
    for name, values in arrays.items():
        # A head without attention among patches has no distance.
        if name != "attention_distance" and not np.isfinite(values).all():
            raise ValueError(f"A model must return finite {name}. Received: NaN or infinity")
    return arrays


def _classes(logits, model):
    """Return the columns that follow from logits."""
    if logits is None:
        return {}
    activation = scipy.special.softmax if model.thresholds is None else scipy.special.expit
    options = {"axis": -1} if model.thresholds is None else {}
    probabilities = activation(logits.astype("float64"), **options)
    names = np.array(class_names(model, probabilities.shape[-1]), object)
    columns = {"probabilities": probabilities.astype("float32")}
    if model.thresholds is None:
        best = probabilities.argmax(axis=-1)
        chosen = probabilities[np.arange(len(best)), best].astype("float32")
        return {**columns, "prediction": names[best], "probability": chosen}
    thresholds = check_thresholds(model.thresholds, probabilities.shape[-1])
    above = [ranked(row, thresholds=thresholds) for row in probabilities]
    return {
        **columns,
        "prediction": as_objects([names[order].tolist() for order in above]),
        "probability": as_objects(
            [row[order].astype("float32") for row, order in zip(probabilities, above, strict=True)]
        ),
    }


def class_names(model, num_classes):
    """Return the names of a model's classes, or their numbers."""
    return model.class_names or list(map(str, range(num_classes)))


def ranked(probabilities, top=None, thresholds=None):
    """Return the numbers of the `top` classes of an image, or of all above their thresholds."""
    order = np.argsort(-probabilities, kind="stable")
    if thresholds is None:
        return order[:top]
    return order[probabilities[order] > np.asarray(thresholds)[order]]


def _spread(values, is_sound):
    """Return the values of the sound images among `None` or NaN for the broken ones."""
    missing = None if values.dtype == object else np.nan
    spread = np.full((len(is_sound), *values.shape[1:]), missing, values.dtype)
    spread[is_sound] = values
    return spread
