"""Representations of whole splits, computed once."""

import hashlib
import importlib.metadata
import logging
import pathlib
import re
import tempfile

import keras
import numpy as np
import tqdm
from keras import ops

import keras_vit
from keras_vit.checkpoints.archives.npz import DAMAGED
from keras_vit.core.files import replacing
from keras_vit.data.datasets import find_source, load
from keras_vit.data.fingerprints import source_digest
from keras_vit.data.skipped import explaining_errors
from keras_vit.evaluation.classification import check_ends
from keras_vit.models.surgery import check_backbone, representation


def extract_features(model, dataset):
    """Computes what a model knows of the images of a dataset before it classifies them.

    Shows its progress. An image that is skipped has neither features nor a label.

    Args:
        model: a model of this package, built, tuned or reloaded.
        dataset: batches of `(images, labels)`, a dataset of `keras_vit.data.load`.

    Returns:
        `(features, labels)`: float32 `(images, width)`, the representation that the head sees
        (after `pre_logits`, if there is one), and int32 `(images,)`.

    Raises:
        ValueError: if the model gives more than a vector of an image, an image has several labels,
            the dataset is repeated, or too many images cannot be decoded.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=16)
    >>> data = keras_vit.data.load("digits", "test", 16, batch_size=64, classes=("0", "1"))
    >>> features, labels = extract_features(model, data)
    >>> features.shape, labels.shape
    ((72, 192), (72,))
    """
    return _extract(_extractor(model), dataset)


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
):
    """Features of a split of a dataset, kept in a directory if one is given.

    A file of the cache has a digest of all that the features depend on: weights and configuration
    of the model, every image and label as they are stored, the image size and how images are cut,
    the versions. So it serves as long as nothing of it has changed, under whatever name.

    Args:
        model: a model of this package.
        name: as in `keras_vit.data.load`, and so are `split`, `classes`, `data_dir`,
            `central_crop_from` and `max_skipped`.
        split: `"train"`, `"validation"` or `"test"`, or several joined with `+`.
        batch_size: images in one step.
        cache: a directory for `.npz` files; `None` to keep nothing.
        classes: names of the classes to keep; `None` for all.
        data_dir: where TensorFlow Datasets keeps its data.
        central_crop_from: smaller side to which images are resized before the middle is cut out.
        max_skipped: the greatest share of images that may be skipped.

    Returns:
        `(features, labels, class_names)`, the first two as in `extract_features`.

    Raises:
        ValueError: if an argument is out of range, or as `extract_features` and `load`.
    """
    extractor = _extractor(model)
    image_size = model.input_shape[1:3]

    def compute():
        dataset = load(
            name,
            split,
            image_size=image_size,
            batch_size=batch_size,
            classes=classes,
            data_dir=data_dir,
            central_crop_from=central_crop_from,
            max_skipped=max_skipped,
        )
        return _extract(extractor, dataset)

    if cache is not None:
        cache = _usable_directory(cache)
    source = find_source(name, split, classes, data_dir)
    if cache is None:
        return *compute(), source.class_names
    settings = (image_size, central_crop_from, max_skipped)
    key = _key(_model_digest(extractor), source_digest(source), settings)
    # The name is for people; the digest says what is in the file.
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


def _extractor(model):
    check_backbone(model)
    # Whatever the head is: it has no part in the features, nor in their cache.
    output = representation(model, ("head",))
    shape = model.inputs[0].shape
    if len(model.inputs) != 1 or len(shape) != 4 or shape[-1] != 3 or len(output.shape) != 2:
        raise ValueError(
            "`model` must map RGB images to a vector for each. "
            f"Received: a model from {[tuple(image.shape) for image in model.inputs]} to "
            f"{tuple(output.shape)}"
        )
    # Float32, since NumPy has no bfloat16 of its own.
    as_float32 = keras.layers.Activation("linear", dtype="float32", name="features")
    return keras.Model(model.input, as_float32(output), name="extractor")


def _extract(extractor, dataset):
    _, labels = dataset.element_spec
    if labels.shape.rank != 1:
        raise ValueError(
            "The images of the dataset must have one label each. "
            f"Received: labels of the shape {tuple(labels.shape)}"
        )
    check_ends(dataset)
    all_features, all_labels = [], []
    with (
        explaining_errors(dataset),
        tqdm.tqdm(total=dataset.num_examples, unit="image", desc="features") as progress,
    ):
        # In one pass, so that an image and its label are skipped together.
        for images, labels in dataset.as_numpy_iterator():
            all_features.append(ops.convert_to_numpy(extractor.predict_on_batch(images)))
            all_labels.append(labels)
            progress.update(len(labels))
    if len(dataset.skipped):
        logging.getLogger("keras_vit").warning("%s", dataset.skipped)
    return np.concatenate(all_features), np.concatenate(all_labels)


def _usable_directory(path):
    """The directory, made if need be. An hour of computing must not end in an error."""
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


def _key(*facts):
    # TensorFlow decodes and resizes the images.
    tensorflow = importlib.metadata.version("tensorflow")
    backend = keras.backend.backend()
    versions = (keras_vit.__version__, keras.__version__, tensorflow, backend)
    return hashlib.sha256(repr((versions, facts)).encode()).hexdigest()


def _model_digest(extractor):
    result = hashlib.sha256(extractor.to_json().encode())
    for weight in extractor.weights:
        result.update(ops.convert_to_numpy(weight).tobytes())
    return result.hexdigest()


def _read(path, key):
    """Features and labels of a file, or `None` if it is not there, damaged or of something else."""
    log = logging.getLogger("keras_vit")
    if not path.exists():
        return None
    try:
        # NumPy leaves a file of its own open where it is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["digest"]) == key:
                found = arrays["features"], arrays["labels"]
                log.info("features of %d images are taken from %s", len(found[1]), path)
                return found
            reason = "is of another model or dataset"
    except DAMAGED:
        reason = "is damaged"
    log.warning("%s %s; its features are computed anew", path, reason)
    return None


def _write(path, key, features, labels):
    try:
        with replacing(path) as partial:
            np.savez(partial, features=features, labels=labels, digest=np.array(key))
    except OSError as error:
        # They are there, only not for the next time.
        logging.getLogger("keras_vit").warning("features are not kept: %s", error)
