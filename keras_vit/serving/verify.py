"""Comparison of an export with its Keras model on real images."""

import dataclasses
import logging
import pathlib

import keras
import numpy as np

from keras_vit.data.sources.folder import describe_left_out, list_images
from keras_vit.models.model import image_spec_of
from keras_vit.models.parts import stored_size
from keras_vit.serving.loaded import load_export, preprocess_files
from keras_vit.serving.predict import read_image

# An int8 export that is as accurate as its model is well within both.
MIN_AGREEMENT = 0.9
MAX_DIFFERENCE = 0.5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between the logits of an export and those of its model.

    Args:
        num_images: number of images that were compared.
        largest_difference: largest absolute difference of two logits.
        agreement: share of the images whose most likely class is the same, from 0 to 1.
        logit_range: difference between the model's largest and smallest logit; 0 if there are
            several images and all have the same logits, because then nothing is compared.
    """

    num_images: int
    largest_difference: float
    agreement: float
    logit_range: float

    @property
    def is_verified(self):
        """Whether the logits agree up to rounding and quantization."""
        is_near = self.largest_difference <= MAX_DIFFERENCE * self.logit_range
        return self.logit_range > 0 and is_near and self.agreement >= MIN_AGREEMENT


def verify(model, version, files, batch_size=8):
    """Compare an export, loaded from its files, with the Keras model on image files.

    If the export decodes images, it gets the files, otherwise preprocessed images.
    """
    answer = load_export(version)
    expected, found = [], []
    for start in range(0, len(files), batch_size):
        encoded = [read_image(path) for path in files[start : start + batch_size]]
        images = preprocess_files(encoded, stored_size(model), image_spec_of(model))
        expected.append(keras.ops.convert_to_numpy(model(images, training=False)))
        found.append(answer(encoded))
    expected, found = np.concatenate(expected).astype("float32"), np.concatenate(found)
    # `load_export` has checked those of the export.
    if not np.isfinite(expected).all():
        raise ValueError(
            "the model must have finite logits. Received: NaN or infinity for "
            f"{(~np.isfinite(expected).all(axis=1)).sum()} of {len(files)} images"
        )
    depends_on_images = len(expected) == 1 or np.ptp(expected, axis=0).any()
    return Comparison(
        num_images=len(files),
        largest_difference=float(np.abs(found - expected).max()),
        agreement=float(np.mean(found.argmax(axis=1) == expected.argmax(axis=1))),
        logit_range=float(np.ptp(expected)) if depends_on_images else 0.0,
    )


def find_images(paths):
    """List image files: the paths themselves, and for folders the images in and below them.

    Images are recognized as in datasets. The number of other files in a folder is logged.
    """
    found = []
    for path in map(pathlib.Path, paths):
        inside = [path]
        if path.expanduser().is_dir():
            listed, left_out = list_images(path.expanduser())
            inside = [pathlib.Path(file) for file in listed]
            if left_out:
                log = logging.getLogger("keras_vit")
                log.warning("in %s %s", path, describe_left_out(left_out))
        if not inside:
            raise ValueError(f"A folder must have images. Received: {str(path)!r}, without any")
        found += inside
    if not found:
        raise ValueError("There must be an image file or a folder of them. Received: none")
    return found


def without_broken(files, paths):
    """Return the files that can be decoded; a warning says how many cannot.

    The error of a file that `paths` name itself is raised, and one if no file can be decoded.
    """
    readable, first_error = [], None
    for file in files:
        try:
            read_image(file)
            readable.append(file)
        except ValueError as error:
            if file in paths:
                raise
            first_error = first_error or error
    if not readable:
        raise first_error
    if first_error:
        logging.getLogger("keras_vit").warning(
            "images that cannot be decoded are left out: %d; the first: %s",
            *(len(files) - len(readable), first_error),
        )
    return readable
