"""An export beside the model that it was made of, on real images."""

import dataclasses
import logging
import pathlib

import keras
import numpy as np

from keras_vit.data.sources.listing import describe_left_out, list_images
from keras_vit.serving.loaded import load_export, preprocess_files
from keras_vit.serving.predict import read_stored

# An export in int8 that is as accurate as its model stays well within both.
MIN_AGREEMENT = 0.9
MAX_DIFFERENCE = 0.5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How far an export's answers are from those of its model.

    Args:
        num_images: how many images were compared.
        largest_difference: of two logits.
        agreement: share of the images whose most likely class is the same, from 0 to 1.
        logit_range: difference of the model's largest and smallest logit; 0 if several images all
            have the same logits, so that nothing can be compared.
    """

    num_images: int
    largest_difference: float
    agreement: float
    logit_range: float

    @property
    def is_verified(self):
        """Whether the export gives the model's answers, up to rounding and quantization."""
        is_near = self.largest_difference <= MAX_DIFFERENCE * self.logit_range
        return self.logit_range > 0 and is_near and self.agreement >= MIN_AGREEMENT


def verify(model, version, files, batch_size=8):
    """Compares an export, loaded from its files, with the Keras model.

    A SavedModel decodes them itself, if it can.

    Args:
        model: the classifier that was exported, with the image size of the export.
        version: path of a version, as `keras_vit.export` returns it.
        files: paths of image files, as `find_images` gives them.
        batch_size: images in a request.

    Returns:
        A `Comparison`.

    Raises:
        ValueError: if there is no export, a file is not an image, or logits are not finite.

    Example:
    >>> from keras_vit.serving.verify import verify
    >>> import PIL.Image
    >>> PIL.Image.new("RGB", (50, 40), "teal").save(tmp_path / "teal.png")
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> version = keras_vit.export(model, tmp_path / "pets")
    >>> verify(model, version, [tmp_path / "teal.png"]).agreement
    1.0
    """
    answer = load_export(version)
    expected, found = [], []
    for start in range(0, len(files), batch_size):
        encoded = [read_stored(path)[0] for path in files[start : start + batch_size]]
        images = preprocess_files(encoded, model.input_shape[1:3])
        expected.append(keras.ops.convert_to_numpy(model(images, training=False)))
        found.append(answer(encoded))
    expected, found = np.concatenate(expected).astype("float32"), np.concatenate(found)
    for name, logits in (("model", expected), ("export", found)):
        if not np.isfinite(logits).all():
            raise ValueError(
                f"the {name} must have finite logits. Received: NaN or infinity for "
                f"{(~np.isfinite(logits).all(axis=1)).sum()} of {len(files)} images"
            )
    return Comparison(
        num_images=len(files),
        largest_difference=float(np.abs(found - expected).max()),
        agreement=float(np.mean(found.argmax(axis=1) == expected.argmax(axis=1))),
        logit_range=_logit_range(expected),
    )


def _logit_range(logits):
    depends_on_images = len(logits) == 1 or np.ptp(logits, axis=0).any()
    return float(np.ptp(logits)) if depends_on_images else 0.0


def find_images(paths):
    """List the image files that paths stand for: themselves, or the images below a folder.

    They are recognised as those of datasets are; how many other files a folder has is logged.

    Args:
        paths: of files and folders.

    Returns:
        A list of `pathlib.Path`s, those of a folder sorted.

    Raises:
        ValueError: if a folder has no images, or there are no paths.
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
