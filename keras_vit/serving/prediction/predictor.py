"""Predictions for batches of images: a small unit of work for any engine."""

import collections.abc
import functools
import os
import threading
from collections.abc import Sequence

import numpy as np

from keras_vit.core.arguments import as_objects, as_pair, check_integer
from keras_vit.core.choices import DTYPES, ENCODED_COLUMNS
from keras_vit.core.files import absolute_path

OUTPUTS = (
    *("prediction", "probability", "probabilities", "logits", "features"),
    "attention_distance",
)
# In order of preference.
IMAGE_COLUMNS = (*ENCODED_COLUMNS, "path")
_LOCK = threading.Lock()


class Predictor:
    """A function of a batch of images, which loads its model when it is first called.

    It is pickled as the path of the model and its settings: engines such as Ray and Spark send it
    to their workers, each of which loads the model once. Photographs are turned as their EXIF
    orientation says, and resized and cropped as the model is evaluated.

    Args:
        path: a run's directory (its best model), a `.keras` file, a checkpoint as in
            `keras_vit.from_checkpoint`, or an export of any format.
        outputs: names of the columns to compute: `"prediction"`, the name of the most likely class;
            `"probability"`, float32, its softmax; `"probabilities"` and `"logits"`, float32
            `(classes,)`; `"features"`, float32 `(width,)`, the representation that the head sees;
            `"attention_distance"`, float32 `(blocks, heads)`, in pixels. For a model with
            thresholds, the first two are lists of the labels above theirs, the most likely first.
            Exports have no features and no attention.
        batch_size: images in one step of the model.
        dtype: what a model of this package computes in, such as `"bfloat16"`; by default what it is
            stored for.
        image_size: int or `(height, width)` to resize the model to; needed for some files.

    Call arguments:
        batch: dictionary of arrays of one length. The first of the columns `bytes`, `content`,
            `image` and `path` has the images: encoded files, or uint8 pixels `(height, width)` or
            `(height, width, channels)`, or paths of files.
        on_images: function that is called with the number of images after each step of the model.

    Call returns:
        A dictionary of arrays: the other columns as they are, those of `outputs`, and `error`,
        `None` or the reason why an image cannot be decoded. Such an image has the prediction `None`
        and NaN.

    Raises:
        ValueError: if an argument is out of range; when it is called, if the model cannot be loaded
            or does not have the outputs, or the batch has no images.

    Example:
    >>> keras_vit.ViT_Ti16(num_classes=3, image_size=32).save(tmp_path / "model.keras")
    >>> predict = keras_vit.serving.Predictor(tmp_path / "model.keras", outputs=["features"])
    >>> found = predict({"id": np.arange(2), "image": np.zeros((2, 32, 32, 3), "uint8")})
    >>> found["features"].shape, list(found)
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
        is_list = isinstance(outputs, (list, tuple)) and len(outputs) > 0
        if not is_list or any(name not in OUTPUTS for name in outputs):
            raise ValueError(
                f"`outputs` must be a list of {', '.join(OUTPUTS)}. Received: outputs={outputs!r}"
            )
        self.outputs = tuple(dict.fromkeys(outputs))
        check_integer("batch_size", batch_size, 1)
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(
                f"`dtype` must be one of {', '.join(DTYPES)}. Received: dtype={dtype!r}"
            )
        self.path = absolute_path(path)
        self.batch_size = batch_size
        self.dtype = dtype
        self.image_size = None if image_size is None else as_pair(image_size, "image_size")

    def __call__(self, batch, on_images=None):
        from keras_vit.serving.prediction.columns import predict_column

        if not isinstance(batch, collections.abc.Mapping):
            raise ValueError(
                f"`batch` must be a dictionary of arrays. Received: {type(batch).__name__}"
            )
        column = self.image_column(batch)
        if isinstance(batch[column], (str, bytes)):
            raise ValueError(
                f"`{column}` must have one value for each image, also for a single one. "
                f"Received: {column}={batch[column]!r:.80}"
            )
        lengths = {name: len(values) for name, values in batch.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"The arrays of a batch must have one length. Received: {lengths}")
        kept = {name: _as_array(values) for name, values in batch.items() if name != column}
        settings = (self.outputs, self.batch_size, on_images)
        return {**kept, **predict_column(self.model, column, batch[column], *settings)}

    @property
    def model(self):
        """The loaded model, one per process for equal predictors."""
        if "_model" not in self.__dict__:
            settings = (self.path, self.outputs, self.batch_size, self.dtype, self.image_size)
            with _LOCK:
                self._model = _load(*settings, _time_of(self.path))
        return self._model

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_model"}

    def image_column(self, names):
        """Return the column of images among the names of columns, which must fit the outputs."""
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


def _as_array(values):
    try:
        return np.asarray(values)
    except ValueError:
        # Lists of several lengths.
        return as_objects(values)


# Spark unpickles a predictor for each of its tasks.
@functools.lru_cache(maxsize=1)
def _load(path, outputs, batch_size, dtype, image_size, _):
    from keras_vit.serving.prediction.models import open_model

    return open_model(path, outputs, batch_size, dtype, image_size)


def _time_of(path):
    """Return when the files of a model changed last: one that is saved again is loaded again."""
    from keras_vit.checkpoints.runs import find_model

    path = find_model(path)
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return max((file.stat().st_mtime_ns for file in files if file.exists()), default=None)
