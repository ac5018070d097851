"""Exports, loaded again as a server would load them."""

import pathlib

import numpy as np

from keras_vit.data.images.decoding import decode
from keras_vit.data.images.transforms import evaluation_image
from keras_vit.serving.formats import file_names, format_of
from keras_vit.serving.runners import load_runner


def load_export(version):
    """Load a version of an export, of any format.

    Returns:
        A function from a list of encoded images to their logits, float32 `(images, num_classes)`.
        It raises `tf.errors.InvalidArgumentError` for an image that cannot be decoded, even if the
        export only flags it, and `ValueError` for logits that are not finite.
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
    row = format_of(version)
    if row is None:
        raise ValueError(
            "`version` must be the directory of an export's version. "
            f"Received: version={str(version)!r}, without {file_names()}"
        )
    if row.has_signatures:
        return row.load_encoded(version / row.file_name)
    run = load_runner(version / row.file_name)
    return lambda encoded: run(preprocess_files(encoded, run.image_shape[:2]))


def preprocess_files(encoded, image_size):
    """Decode and preprocess image files as in evaluation.

    Args:
        encoded: iterable of bytes, the contents of the files.
        image_size: `(height, width)`.

    Returns:
        A float32 array `(images, height, width, 3)` in [-1, 1].
    """
    return np.stack([evaluation_image(decode(file), image_size) for file in encoded])
