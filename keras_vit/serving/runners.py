"""Predictions by the runtimes of the formats that take preprocessed images."""

import importlib.util
import os
import pathlib

import numpy as np

from keras_vit.core.pixels import check_images
from keras_vit.serving.formats import FORMATS


def load_runner(path: str | os.PathLike) -> "Runner":
    """Load a file in its own runtime, on the CPU.

    Args:
        path: path of a file that `keras_vit.export` wrote in a format other than SavedModel, of its
            version, or of the directory of versions, of which the last is taken. The format is
            recognized by the suffix of the file, such as `.onnx`, `.tflite` or `.xml`.

    Returns:
        A `Runner`: a function of preprocessed images, float32 `(n, height, width, 3)` in [-1, 1],
        of any n, that returns logits, float32 `(n, num_classes)`, both of them NumPy arrays.

    Raises:
        ValueError: if the file is of another kind, missing or damaged, or a package is missing.

    Example:
    >>> from keras_vit.serving.formats.files import write_onnx
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> run = keras_vit.serving.load_runner(write_onnx(model, tmp_path))  # or load_runner(tmp_path)
    >>> run(np.zeros((2, 32, 32, 3), "float32")).shape
    (2, 3)
    """
    rows = {pathlib.Path(row.file_name).suffix: row for row in FORMATS.values() if row.load}
    path = _find_file(pathlib.Path(path).expanduser(), rows.values())
    if path.suffix not in rows:
        raise ValueError(f"`path` must end with {', '.join(rows)}. Received: path={str(path)!r}")
    row = rows[path.suffix]
    if importlib.util.find_spec(row.runtime) is None:
        raise ValueError(
            f"`path` needs {row.runtime.replace('_', '-')}: "
            f"pip install 'keras-vit-zoo[{row.name}]'. Received: path={str(path)!r}"
        )
    if not path.exists():
        raise ValueError(f"`path` must exist. Received: path={str(path)!r}, which is not there")
    try:
        return Runner(*row.load(path))
    # Each runtime raises exceptions of its own, and some of them are plain `Exception`s.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ValueError(
            f"`path` must be a complete {path.suffix} file of one input and one output, of "
            f"`keras_vit.export`. Received: path={str(path)!r} ({reason})"
        ) from error


def _find_file(path, rows):
    """Return the file of a version, or of the last version of a directory; else the path."""
    versions = [path] if path.is_dir() else []
    numbered = [folder for folder in path.glob("*") if folder.name.isdecimal()] if versions else []
    versions += sorted(numbered, key=lambda folder: int(folder.name), reverse=True)[:1]
    files = [version / row.file_name for version in versions for row in rows]
    return next((file for file in files if file.exists()), path)


class Runner:
    """A model loaded by `load_runner`.

    Args:
        run: function of a batch of at least one image.
        image_shape: `(height, width, 3)` of its images, `None` for any height and width.
        num_classes: number of logits.
    """

    def __init__(self, run, image_shape, num_classes):
        self.image_shape = image_shape
        self._run = run
        self._num_classes = num_classes

    def __call__(self, images):
        images = np.asarray(images)
        check_images(images)
        images = images.astype("float32", copy=False)
        fits = None in self.image_shape or images.shape[1:] == self.image_shape
        if images.ndim != 4 or not fits:
            raise ValueError(
                f"`images` must be an array (n, {', '.join(map(str, self.image_shape))}). "
                f"Received: an array {images.shape}"
            )
        if not len(images):
            return np.zeros((0, self._num_classes), "float32")
        return np.array(self._run(images), "float32")
