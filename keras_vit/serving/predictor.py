"""`Predictor`: predict batches of images, in this process or in workers of Ray and Spark."""

import concurrent.futures
import functools
import os
import threading
from collections.abc import Sequence

import numpy as np
import scipy.special
import tensorflow as tf

from keras_vit.checkpoints.catalog.download import files_of, find_file
from keras_vit.checkpoints.named_models import digest_of_files
from keras_vit.checkpoints.run_files import find_model
from keras_vit.core.arguments import DTYPES, as_objects, as_pair, check_choice, check_integer
from keras_vit.core.files import absolute_path
from keras_vit.core.machine import num_cores
from keras_vit.core.multi_label import check_thresholds
from keras_vit.data.images.decoding import decode, explain
from keras_vit.data.inputs import ENCODED_COLUMNS
from keras_vit.serving.formats import find_export
from keras_vit.serving.runner import CLASS_OUTPUTS, load_runner

OUTPUTS = (*CLASS_OUTPUTS, "features", "attention_distance")
# If a batch has several of these columns, the first one contains the images.
IMAGE_COLUMNS = (*ENCODED_COLUMNS, "path")
_LOCK = threading.Lock()
_THREADS = concurrent.futures.ThreadPoolExecutor(2 * num_cores(), "decoding")


class Predictor:
    """Predict batches of images; the first call loads the model.

    A predictor is pickled as the path of its model and its settings: engines such as Ray and Spark
    send it to their workers, and each worker loads the model once. Photographs are turned upright
    by their EXIF orientation, then resized and cropped as in evaluation.

    Args:
        path: a run's directory (its best model), a `.keras` file, a checkpoint as in
            `keras_vit.from_checkpoint`, or an export of any format.
        outputs: names of the columns to compute: `"prediction"`, the name of the most likely class;
            `"probability"`, float32, the probability of that class; `"probabilities"` and
            `"logits"`, float32 `(classes,)`; `"features"`, float32 `(width,)`, the input of the
            head; `"attention_distance"`, float32 `(blocks, heads)`, in pixels. A model that
            predicts values has `"values"`, float32 `(values,)`, not the first four. For a model
            with thresholds, `"prediction"` lists the labels whose probabilities are above their
            thresholds, most likely first, and `"probability"` lists these probabilities. An export
            cannot compute `"attention_distance"`. It can compute `"features"` if its model has no
            head, or if it has the signature `"features"`.
        batch_size: number of images in each call of the model.
        dtype: dtype in which a model of this package computes, such as `"bfloat16"`; by default the
            dtype of the model.
        image_size: int or `(height, width)` to resize the model to; needed for files that do not
            record an image size.

    Call arguments:
        batch: dictionary of columns: arrays of the same length. The images are in the column
            `bytes`, `content`, `image` or `path` (the first of these that exists): encoded files,
            uint8 pixels `(height, width)` or `(height, width, channels)`, or paths of files. For a
            model with other channels or a range of values, pixels are as in a `.npy` file.
        on_images: function that is called with the number of images after each call of the model.

    Call returns:
        A dictionary of arrays: the other columns unchanged, the outputs, and `error`, which is
        `None` or the reason why an image cannot be decoded. The outputs of a bad image are `None`
        or NaN.

    Raises:
        ValueError: if an argument is out of range; on a call, if the model cannot be loaded or does
            not have the outputs, or the batch has no images.

    Example:
    >>> keras_vit.ViT_Ti16(num_classes=3, image_size=32).save(tmp_path / "model.keras")
    >>> predict = keras_vit.serving.Predictor(tmp_path / "model.keras", outputs=["features"])
    >>> columns = predict({"id": np.arange(2), "image": np.zeros((2, 32, 32, 3), "uint8")})
    >>> columns["features"].shape, list(columns)
    ((2, 192), ['id', 'features', 'error'])
    """

    def __init__(
        self,
        path: str | os.PathLike,
        outputs: Sequence[str] = ("prediction", "probability"),
        batch_size: int = 32,
        dtype: str | None = None,
        image_size: int | tuple[int, int] | None = None,
    ) -> None:
        for name in outputs:
            check_choice("outputs", name, OUTPUTS)
        self.outputs = tuple(dict.fromkeys(outputs))
        check_integer("batch_size", batch_size, 1)
        if dtype is not None:
            check_choice("dtype", dtype, DTYPES)
        self.path = absolute_path(path)
        self.batch_size = batch_size
        self.dtype = dtype
        self.image_size = None if image_size is None else as_pair(image_size, "image_size")

    def __call__(self, batch, on_images=None):
        column = self.image_column(batch)
        unchanged = {name: _as_array(values) for name, values in batch.items() if name != column}
        predictions = predict_column(
            self.model, column, batch[column], self.outputs, self.batch_size, on_images
        )
        return {**unchanged, **predictions}

    @property
    def model(self):
        """The `Runner` of the model, which equal predictors in a process share."""
        if "_model" not in self.__dict__:
            settings = (self.path, self.outputs, self.batch_size, self.dtype, self.image_size)
            with _LOCK:
                self._model = _load(*settings, _modified_time(self.path))
        return self._model

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_model"}

    def image_column(self, names):
        """Return the name of the column of images, after checking the names of all columns."""
        column = next((name for name in IMAGE_COLUMNS if name in names), None)
        if column is None:
            raise ValueError(
                f"A batch must have one of the columns {', '.join(IMAGE_COLUMNS)}. "
                f"Received: {', '.join(map(str, names))}"
            )
        if taken := [name for name in (*self.outputs, "error") if name in names]:
            raise ValueError(
                "A batch must not have columns with the names of outputs. "
                f"Received: {', '.join(taken)}"
            )
        return column


def predict_column(runner, column, values, outputs, batch_size, on_images=None):
    """Predict a column of images, decoding the next batch while the model computes.

    Args:
        runner: a `Runner`.
        column: name of the column; a column `path` has paths of files.
        values: array or list of encoded images, of uint8 pixels, or of paths.
        outputs: as in `Predictor`.
        batch_size: number of images in each call of the model.
        on_images: function that is called with the number of images after each call of the model.

    Returns:
        A dictionary of arrays: the outputs, and `error`.
    """
    steps = [values[start : start + batch_size] for start in range(0, len(values), batch_size)]
    results, errors, upcoming = [], [], []
    for step in (*steps, []):
        current = upcoming
        upcoming = [_THREADS.submit(_prepare, runner, column, value) for value in step]
        prepared = [future.result() for future in current]
        images = [image for image, reason in prepared if reason is None]
        if images:
            results.append(runner.outputs(images))
            for name, array in results[-1].items():
                # The distance is NaN for a head without attention among patches.
                if name != "attention_distance" and not np.isfinite(array).all():
                    raise ValueError(
                        f"A model must return finite {name}. Received: NaN or infinity"
                    )
        errors += [reason for _, reason in prepared]
        if on_images is not None:
            on_images(len(prepared))
    # If no image can be decoded, compute a blank image to get the shapes of the outputs.
    count, blank = None if results else 0, np.zeros((32, 32, runner.image_spec.channels), "uint8")
    results = results or [runner.outputs([runner.prepare_pixels(blank)])]
    arrays = {name: np.concatenate([r[name] for r in results])[:count] for name in results[0]}
    if "logits" in arrays and not set(outputs) <= set(arrays):
        arrays |= _classes(arrays["logits"], runner)
    if not set(outputs) <= set(arrays):
        raise ValueError(
            "`outputs` must be outputs of the model or the export. "
            f"Received: {', '.join(outputs)}; the model has {', '.join(arrays)}"
        )
    is_decoded = np.array([reason is None for reason in errors], bool)
    columns = {name: _insert_missing(arrays[name], is_decoded) for name in outputs}
    return {**columns, "error": as_objects(errors)}


def ranked(probabilities, top=None, thresholds=None):
    """Return the `top` classes, or all classes above their thresholds, the most likely first."""
    order = np.argsort(-probabilities, kind="stable")
    if thresholds is None:
        return order[:top]
    return order[probabilities[order] > np.asarray(thresholds)[order]]


def class_names_of(runner, num_classes):
    """Return the names of a model's classes, or the class numbers if it has no names."""
    return runner.class_names or list(map(str, range(num_classes)))


def digest_of_model(path):
    """Return a digest of a model's or an export's files; download a published checkpoint."""
    version = find_export(path)
    if version is not None:
        return digest_of_files(version.rglob("*"))
    file = find_model(path)
    return digest_of_files(files_of(file if file.suffix == ".keras" else find_file(file)))


def _as_array(values):
    try:
        return np.asarray(values)
    except ValueError:
        # The values are lists of different lengths.
        return as_objects(values)


# Cached, because Spark unpickles a predictor for each of its tasks.
@functools.lru_cache(maxsize=1)
def _load(path, outputs, batch_size, dtype, image_size, _):
    return load_runner(path, outputs, batch_size, dtype, image_size)


def _modified_time(path):
    """Return the time when a model's files last changed; `_load` loads a changed model again."""
    path = find_model(path)
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return max((file.stat().st_mtime_ns for file in files if file.exists()), default=None)


def _prepare(runner, column, value):
    """Return a prepared image and `None`, or `None` and the reason why the image is bad."""
    if isinstance(value, dict):
        # Hugging Face's datasets store the bytes of an image, or the path of its file.
        column = column if value.get("bytes") is not None else "path"
        value = value.get("path" if column == "path" else "bytes")
    # pandas has NaN for a missing value.
    if value is None or isinstance(value, float):
        return None, "no image"
    if column == "path":
        value, reason = _read(value)
        if reason is not None:
            return None, reason
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return runner.prepare_pixels(_as_pixels(value, runner.image_spec)), None
    encoded = bytes(value)
    try:
        return runner.prepare(encoded), None
    except tf.errors.InvalidArgumentError as error:
        return None, _reason(error, encoded, runner.image_spec)


def _read(path):
    """Return the bytes of a file and `None`, or `None` and the reason why there is no such file.

    Other errors, such as a network failure, are raised: they say nothing about the image.
    """
    try:
        return tf.io.read_file(os.fspath(path)).numpy(), None
    except tf.errors.NotFoundError:
        return None, "no such file"
    except tf.errors.FailedPreconditionError:
        return None, "a directory"
    except tf.errors.OpError as error:
        raise OSError(f"{path} could not be read: {explain(error)}") from error


def _reason(error, encoded, image_spec):
    try:
        # Decode again, eagerly: the message of an error in a graph has a stack trace.
        decode(encoded, image_spec)
    except tf.errors.OpError as eager:
        error = eager
    return explain(error, encoded)


def _as_pixels(pixels, image_spec):
    pixels, channels = np.asarray(pixels), image_spec.channels
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    allowed = {1: (1, 3), 3: (1, 3, 4)}.get(channels, (channels,))
    is_type = pixels.dtype == "uint8" or not image_spec.has_rgb_bytes
    if pixels.ndim != 3 or not pixels.size or pixels.shape[-1] not in allowed or not is_type:
        raise ValueError(
            "An image must be the bytes of a file, or pixels (height, width) or (height, width, "
            f"{' or '.join(map(str, allowed))}), of uint8 for photographs. "
            f"Received: an array {pixels.shape} of {pixels.dtype}"
        )
    # Alpha is dropped, as when a file is decoded.
    return pixels[..., :3] if channels == 3 else pixels


def _classes(logits, runner):
    """Return the columns that are computed from logits."""
    num_classes = logits.shape[-1]
    names = class_names_of(runner, num_classes)
    # The softmax of one logit is always 1.
    if logits.ndim != 2 or num_classes < 2 or len(names) != num_classes:
        raise ValueError(
            "A model must be a classifier of at least two classes, with one name per class. "
            f"Received: logits {logits.shape[1:]} and {len(names)} names"
        )
    names, logits = np.array(names, object), logits.astype("float64")
    if runner.thresholds is None:
        probabilities = scipy.special.softmax(logits, axis=-1)
        best = probabilities.argmax(axis=-1)
        classes, chosen = names[best], probabilities[np.arange(len(best)), best].astype("float32")
    else:
        probabilities = scipy.special.expit(logits)
        thresholds = check_thresholds(runner.thresholds, num_classes)
        orders = [ranked(row, thresholds=thresholds) for row in probabilities]
        rows = zip(probabilities.astype("float32"), orders, strict=True)
        classes = as_objects([names[order].tolist() for order in orders])
        chosen = as_objects([row[order] for row, order in rows])
    probabilities = probabilities.astype("float32")
    return {"probabilities": probabilities, "prediction": classes, "probability": chosen}


def _insert_missing(values, is_decoded):
    """Insert `None` or NaN for each bad image into the values of the decoded images."""
    missing = None if values.dtype == object else np.nan
    spread = np.full((len(is_decoded), *values.shape[1:]), missing, values.dtype)
    spread[is_decoded] = values
    return spread
