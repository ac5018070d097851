"""Compute the features of whole datasets, and keep them in a cache directory."""

import contextlib
import hashlib
import importlib.metadata
import logging
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.files import read_npz, replacing
from keras_vit.data import load
from keras_vit.data.sources.feature_source import compute_features
from keras_vit.evaluation.classification import as_batches
from keras_vit.models.features import feature_extractor
from keras_vit.models.image_model import image_spec_of
from keras_vit.models.inference import for_inference
from keras_vit.version import __version__


def extract_features(
    model: keras.Model, dataset: Any, layers: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute a model's representation of each image of a dataset, with a progress bar.

    Skipped images have neither features nor labels.

    Args:
        model: a model of this package.
        dataset: a dataset from `keras_vit.data.load`, or its `info.dataset`.
        layers: names of layers, such as `["block_8", "encoder_norm"]`. Their class tokens are
            concatenated, or the means of their patches if the model's output does not depend on
            the class token. `None` for the input of the head (after `pre_logits`, if the model has
            it).

    Returns:
        `(features, labels)`. Features are float32 `(images, width)`. Labels are int32 `(images,)`,
        or float32 `(images, classes)` for a multi-label dataset.

    Raises:
        ValueError: if the model does not map an image to a vector, the dataset is repeated, or too
            many images cannot be decoded.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=16)
    >>> data = keras_vit.data.load("digits", "test", 16, batch_size=64, classes=("0", "1"))
    >>> features, labels = extract_features(model, data)
    >>> features.shape, labels.shape
    ((72, 192), (72,))
    """
    return _extract(feature_extractor(model, layers), as_batches(dataset))


def split_features(model, name, split, batch_size=32, cache=None, layers=None, **options):
    """Return the features, labels and class names of a split; keep them in the directory `cache`.

    `layers` is as in `extract_features`, and other options are as in `keras_vit.data.load`.

    A file in `cache` records a digest of everything on which the features depend: weights and
    configuration of the model, `Source.digest` of the images and labels, the preprocessing, and
    versions of packages. The file is used as long as the digest does not change.
    """
    extractor, image_size = feature_extractor(model, layers), model.input_shape[1:3]
    spec = image_spec_of(model)
    spec = spec.of_whole_image() if options.get("central_crop_from") else spec
    batches = as_batches(load(name, split, image_size, batch_size, image_spec=spec, **options))
    if cache is None:
        return *_extract(extractor, batches), batches.class_names
    cache = pathlib.Path(cache).expanduser()
    # If the directory cannot be created, raise the error before features are computed, which may
    # take an hour.
    cache.mkdir(parents=True, exist_ok=True)
    dataset, count = batches.info.dataset, batches.info.num_examples
    order = dataset.training, dataset.seed
    key = _key(extractor, dataset.examples.digest(), dataset.maker, dataset.max_skipped, order)
    # The words in the file name are for people; the key identifies the features.
    words = re.sub(r"\W+", "-", f"{pathlib.Path(str(name)).name}-{split}")
    path = cache / f"{words}-{key[:16]}.npz"
    arrays = _read(path, key)
    if arrays is None:
        arrays = _extract(extractor, batches)
        _write(path, key, *arrays)
    elif len(arrays[1]) < count:
        text = "%d of %d images were skipped when the features in %s were computed"
        logging.getLogger("keras_vit").warning(text, count - len(arrays[1]), count, path)
    return *arrays, batches.class_names


def _extract(extractor, batches):
    features, labels = compute_features(batches, for_inference(extractor).predict_on_batch)
    if len(batches.info.skipped):
        logging.getLogger("keras_vit").warning("%s", batches.info.skipped)
    return features, labels


def _key(extractor, *settings):
    model = hashlib.sha256(extractor.to_json().encode())
    for weight in extractor.weights:
        model.update(ops.convert_to_numpy(weight).tobytes())
    # With every backend, TensorFlow decodes and resizes the images.
    tensorflow = importlib.metadata.version("tensorflow")
    versions = (__version__, keras.__version__, tensorflow, keras.backend.backend())
    settings = (model.hexdigest(), *settings)
    return hashlib.sha256(repr((versions, settings)).encode()).hexdigest()


def _read(path, key):
    """Read features and labels; return `None` for a missing or damaged file, or another key."""
    log = logging.getLogger("keras_vit")
    if not path.exists():
        return None
    # Damaged files raise many types of errors.
    with contextlib.suppress(Exception):
        arrays = read_npz(path)
        if str(arrays["digest"]) == key:
            features, labels = arrays["features"], arrays["labels"]
            log.info("features of %d images are taken from %s", len(labels), path)
            return features, labels
    log.warning("%s is damaged or has other contents; features are computed again", path)
    return None


def _write(path, key, features, labels):
    try:
        with replacing(path) as partial:
            np.savez(partial, features=features, labels=labels, digest=np.array(key))
    except OSError as error:
        # The features are still returned. They are computed again next time.
        logging.getLogger("keras_vit").warning("features are not kept: %s", error)
