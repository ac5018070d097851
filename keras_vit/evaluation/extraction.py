"""Features of whole splits, and the cache that they are kept in."""

import dataclasses
import hashlib
import importlib.metadata
import logging
import pathlib
import re
import tempfile
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.files import read_npz, replacing
from keras_vit.core.images import WHOLE_IMAGE
from keras_vit.data.loading import find_source, load
from keras_vit.data.sources.features import compute_features
from keras_vit.evaluation.classification import check_ends
from keras_vit.models.features import feature_extractor
from keras_vit.models.inference import for_inference
from keras_vit.models.model import image_spec_of
from keras_vit.version import __version__


def extract_features(model: keras.Model, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute a model's representation of each image of a dataset.

    Shows a progress bar. An image that is skipped has neither features nor a label.

    Args:
        model: a model of this package, built, tuned or reloaded.
        dataset: batches of `(images, labels)`, a dataset of `keras_vit.data.load`.

    Returns:
        `(features, labels)`: float32 `(images, width)`, the representation that the head sees
        (after `pre_logits`, if there is one), and int32 `(images,)`.

    Raises:
        ValueError: if the model does not map an image to a vector, images have several labels, the
            dataset is repeated, or too many images cannot be decoded.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=16)
    >>> data = keras_vit.data.load("digits", "test", 16, batch_size=64, classes=("0", "1"))
    >>> features, labels = extract_features(model, data)
    >>> features.shape, labels.shape
    ((72, 192), (72,))
    """
    return _extract(feature_extractor(model), dataset)


def split_features(
    model,
    name,
    split,
    batch_size=32,
    cache=None,
    classes=None,
    data_dir=None,
    central_crop_from=None,
    max_skipped=0.1,
    upright=False,
):
    """Return features, labels and class names of a split, from a cache directory if one is given.

    With `upright`, photographs are turned by their EXIF orientation.

    A file of the cache has a digest of all that the features depend on: weights and configuration
    of the model, `Source.digest` of the images and labels, the image size, the crop, and the
    versions. It is used as long as none of these have changed.
    """
    extractor = feature_extractor(model)
    image_size = model.input_shape[1:3]
    image_spec = WHOLE_IMAGE if central_crop_from else image_spec_of(model)

    def compute():
        dataset = load(
            *(name, split, image_size, batch_size),
            classes=classes,
            data_dir=data_dir,
            central_crop_from=central_crop_from,
            image_spec=image_spec,
            max_skipped=max_skipped,
            upright=upright,
        )
        return _extract(extractor, dataset)

    if cache is not None:
        cache = _usable_directory(cache)
    source = find_source(name, split, classes, data_dir)
    if cache is None:
        return *compute(), source.class_names
    settings = (
        image_size,
        central_crop_from,
        max_skipped,
        upright,
        *dataclasses.astuple(image_spec),
    )
    key = _key(extractor, source.digest(), settings)
    # The name is for people; the digest identifies the features.
    words = re.sub(r"\W+", "-", f"{pathlib.Path(str(name)).name}-{split}")
    path = cache / f"{words}-{key[:16]}.npz"
    found = _read(path, key)
    if found is None:
        found = compute()
        _write(path, key, *found)
    elif len(found[1]) < source.num_examples:
        logging.getLogger("keras_vit").warning(
            "%d of %d images were skipped when the features in %s were computed",
            *(source.num_examples - len(found[1]), source.num_examples, path),
        )
    return *found, source.class_names


def _extract(extractor, dataset):
    _, labels = dataset.element_spec
    if labels.shape.rank != 1:
        raise ValueError(
            "The images of the dataset must have one label each. "
            f"Received: labels of shape {tuple(labels.shape)}"
        )
    check_ends(dataset)
    found = compute_features(dataset, for_inference(extractor).predict_on_batch)
    if len(dataset.skipped):
        logging.getLogger("keras_vit").warning("%s", dataset.skipped)
    return found


def _usable_directory(path):
    """Make a directory if it is missing, and check that it can be written."""
    path = pathlib.Path(path).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ValueError(
            "`cache` must be a directory that can be written. "
            f"Received: cache={str(path)!r} ({error})"
        ) from error
    return path


def _key(extractor, *facts):
    model = hashlib.sha256(extractor.to_json().encode())
    for weight in extractor.weights:
        model.update(ops.convert_to_numpy(weight).tobytes())
    # TensorFlow decodes and resizes the images.
    tensorflow = importlib.metadata.version("tensorflow")
    versions = (__version__, keras.__version__, tensorflow, keras.backend.backend())
    facts = (model.hexdigest(), *facts)
    return hashlib.sha256(repr((versions, facts)).encode()).hexdigest()


def _read(path, key):
    """Return features and labels of a file, or `None` if it is missing, damaged or does not fit."""
    log = logging.getLogger("keras_vit")
    if not path.exists():
        return None
    try:
        arrays = read_npz(path)
        if str(arrays["digest"]) == key:
            found = arrays["features"], arrays["labels"]
            log.info("features of %d images are taken from %s", len(found[1]), path)
            return found
        reason = "is for another model or dataset"
    # Errors of damaged files have many types.
    except Exception:
        reason = "is damaged"
    log.warning("%s %s; its features are computed again", path, reason)
    return None


def _write(path, key, features, labels):
    try:
        with replacing(path) as partial:
            np.savez(partial, features=features, labels=labels, digest=np.array(key))
    except OSError as error:
        # The features are returned, and only missing next time.
        logging.getLogger("keras_vit").warning("features are not kept: %s", error)
