"""Features of whole datasets, and the cache that they are kept in."""

import contextlib
import hashlib
import importlib.metadata
import logging
import pathlib
import re
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.files import read_npz, replacing
from keras_vit.core.image_spec import WHOLE_IMAGE
from keras_vit.data import load
from keras_vit.data.sources.feature_source import compute_features
from keras_vit.evaluation.classification import as_batches
from keras_vit.models.features import feature_extractor
from keras_vit.models.image_model import image_spec_of
from keras_vit.models.inference import for_inference
from keras_vit.version import __version__


def extract_features(model: keras.Model, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute a model's representation of each image of a dataset.

    Shows a progress bar. An image that is skipped has neither features nor a label.

    Args:
        model: a model of this package, built, tuned or reloaded.
        dataset: a dataset of `keras_vit.data.load`, or its `info.dataset`.

    Returns:
        `(features, labels)`: float32 `(images, width)`, the representation that the head sees
        (after `pre_logits`, if there is one), and the labels, int32 `(images,)` if images have one.

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
    return _extract(feature_extractor(model), as_batches(dataset))


def split_features(model, name, split, batch_size=32, cache=None, **options):
    """Return features, labels and class names of a split, from a cache directory if one is given.

    The other options are those of `keras_vit.data.load`.

    A file of the cache has a digest of all that the features depend on: weights and configuration
    of the model, `Source.digest` of the images and labels, the preprocessing, and the versions. It
    is used as long as none of these have changed.
    """
    extractor, image_size = feature_extractor(model), model.input_shape[1:3]
    spec = WHOLE_IMAGE if options.get("central_crop_from") else image_spec_of(model)
    batches = as_batches(load(name, split, image_size, batch_size, image_spec=spec, **options))
    if cache is None:
        return *_extract(extractor, batches), batches.class_names
    cache = pathlib.Path(cache).expanduser()
    # An error shows before an hour of computing features.
    cache.mkdir(parents=True, exist_ok=True)
    dataset, count = batches.info.dataset, batches.info.num_examples
    order = dataset.training, dataset.seed
    key = _key(extractor, dataset.examples.digest(), dataset.maker, dataset.max_skipped, order)
    # The name is for people; the digest identifies the features.
    words = re.sub(r"\W+", "-", f"{pathlib.Path(str(name)).name}-{split}")
    path = cache / f"{words}-{key[:16]}.npz"
    found = _read(path, key)
    if found is None:
        found = _extract(extractor, batches)
        _write(path, key, *found)
    elif len(found[1]) < count:
        text = "%d of %d images were skipped when the features in %s were computed"
        logging.getLogger("keras_vit").warning(text, count - len(found[1]), count, path)
    return *found, batches.class_names


def _extract(extractor, batches):
    found = compute_features(batches, for_inference(extractor).predict_on_batch)
    if len(batches.info.skipped):
        logging.getLogger("keras_vit").warning("%s", batches.info.skipped)
    return found


def _key(extractor, *settings):
    model = hashlib.sha256(extractor.to_json().encode())
    for weight in extractor.weights:
        model.update(ops.convert_to_numpy(weight).tobytes())
    # TensorFlow decodes and resizes the images.
    tensorflow = importlib.metadata.version("tensorflow")
    versions = (__version__, keras.__version__, tensorflow, keras.backend.backend())
    settings = (model.hexdigest(), *settings)
    return hashlib.sha256(repr((versions, settings)).encode()).hexdigest()


def _read(path, key):
    """Return features and labels of a file, or `None` if it is missing, damaged or does not fit."""
    log = logging.getLogger("keras_vit")
    if not path.exists():
        return None
    # Errors of damaged files have many types.
    with contextlib.suppress(Exception):
        arrays = read_npz(path)
        if str(arrays["digest"]) == key:
            found = arrays["features"], arrays["labels"]
            log.info("features of %d images are taken from %s", len(found[1]), path)
            return found
    log.warning("%s is damaged or of something else; its features are computed again", path)
    return None


def _write(path, key, features, labels):
    try:
        with replacing(path) as partial:
            np.savez(partial, features=features, labels=labels, digest=np.array(key))
    except OSError as error:
        # The features are returned, and only missing next time.
        logging.getLogger("keras_vit").warning("features are not kept: %s", error)
