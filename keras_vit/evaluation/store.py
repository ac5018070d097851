"""Features that `keras-vit predict --outputs features` has written, read again."""

import dataclasses
import json
import logging
import pathlib

import numpy as np

from keras_vit.core.arguments import as_objects
from keras_vit.core.choices import PREDICTIONS_JOB, PREDICTIONS_RECORD
from keras_vit.evaluation.fewshot import SEEDS, fewshot_accuracies
from keras_vit.evaluation.search import nearest


@dataclasses.dataclass(frozen=True)
class FeatureStore:
    """The features of a dataset.

    Args:
        ids: object array of the ids of the images that could be decoded.
        features: float32 array `(images, width)`.
        labels: object array of the names of their classes, or `None`.
        record: dictionary of what was computed: `model`, `digest_of_model`, `images`, `split` and
            more.
    """

    ids: np.ndarray
    features: np.ndarray
    labels: np.ndarray | None
    record: dict

    def search(self, queries, count=5):
        """Find the most similar images, as `keras_vit.evaluation.search.nearest` does."""
        return nearest(self.features, queries, count)


def is_store(path):
    """Whether a path is a directory of predictions."""
    return pathlib.Path(path, PREDICTIONS_RECORD).is_file()


def read_features(folder):
    """Read the features of a dataset.

    Args:
        folder: directory that `keras-vit predict MODEL DATA --output DIR --outputs features` wrote.

    Returns:
        A `FeatureStore`, without the images that could not be decoded, whose number is logged.

    Raises:
        ValueError: if it is not such a directory, or rows are missing.

    Example:
    >>> from keras_vit.distributed.batch import Job, Parts
    >>> keras_vit.ViT_Ti16(num_classes=3, image_size=16).save(tmp_path / "model.keras")
    >>> predictor = keras_vit.serving.Predictor(tmp_path / "model.keras", ["features"])
    >>> parts = Parts(Job(predictor, ("digits",), tmp_path / "features", "test"))
    >>> parts.write(0)
    0
    >>> read_features(tmp_path / "features").features.shape
    (359, 192)
    """
    folder = pathlib.Path(folder).expanduser()
    record = _read_record(folder)
    table = _read_sound(folder, record["num_images"])
    width = len(table["features"][0])
    flat = np.concatenate([part.flatten().to_numpy() for part in table["features"].chunks])
    labels = as_objects(table["label"].to_pylist()) if "label" in table.column_names else None
    ids = as_objects(table["id"].to_pylist())
    return FeatureStore(ids, flat.reshape(-1, width), labels, record)


def _read_record(folder):
    if not is_store(folder):
        raise ValueError(
            "`folder` must be a directory of `keras-vit predict --output`. "
            f"Received: {str(folder)!r}, which has no {PREDICTIONS_RECORD}"
        )
    record = json.loads((folder / PREDICTIONS_RECORD).read_text(encoding="utf-8"))
    if "features" not in record.get("outputs", ()):
        raise ValueError(
            "The predictions must have features (`--outputs features`). "
            f"Received: {str(folder)!r} with {', '.join(record.get('outputs', ()))}"
        )
    return record


def _read_sound(folder, num_images):
    """Read the rows of the images that could be decoded."""
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet

    # A file that another job wrote at the same time has rows that do not belong here.
    jobs = {
        pyarrow.parquet.read_metadata(path).metadata[PREDICTIONS_JOB]
        for path in folder.glob("*.parquet")
    }
    dataset = pyarrow.dataset.dataset(folder, format="parquet")
    names = [name for name in ("id", "label", "features", "error") if name in dataset.schema.names]
    table = dataset.to_table(columns=names)
    if len(table) != num_images or len(jobs) > 1:
        raise ValueError(
            f"All {num_images} images must have a row: run the command that wrote them again. "
            f"Received: {str(folder)!r} with {len(table)} rows of {len(jobs)} commands"
        )
    sound = table.filter(pyarrow.compute.is_null(table["error"]))
    if not len(sound):
        raise ValueError(f"An image must have features. Received: {str(folder)!r} without any")
    if len(sound) < len(table):
        logging.getLogger("keras_vit").warning(
            "%d of %d images in %s have no features, because they cannot be decoded",
            *(len(table) - len(sound), len(table), folder),
        )
    return sound


def evaluate_stores(train, test, shots=None, seeds=SEEDS, method="least-squares", l2=None):
    """Return the accuracy of the features of one store on those of another.

    Args:
        train: `FeatureStore` of the labelled images to learn from.
        test: `FeatureStore` of the images that are classified, of the same model.
        shots: as in `keras_vit.evaluation.fewshot_accuracies`, and so are the others.
        seeds: seeds of the choice of images.
        method: the classifier.
        l2: weight of the squared parameters.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy.

    Raises:
        ValueError: if the stores are of two models, have no labels or several per image, have
            images in common, or the second has a class that the first lacks.
    """
    check_same_model(train, test)
    names = _class_names(train, test)
    if train.record["images"] == test.record["images"] and set(train.ids) & set(test.ids):
        raise ValueError(
            "The images to learn from and those to classify must be different. "
            f"Received: {len(set(train.ids) & set(test.ids))} common images"
        )
    numbers = {name: number for number, name in enumerate(names)}
    columns = []
    for store in (train, test):
        labels = np.array([numbers[label] for label in _labels_of(store)], "int32")
        columns += [store.features, labels]
    return fewshot_accuracies(*columns, len(names), shots, seeds, method, l2)


def _class_names(train, test):
    """Return the names of the classes of both, in the order of the dataset if it is the same."""
    known = set(_labels_of(train))
    if unknown := sorted(set(_labels_of(test)) - known):
        raise ValueError(
            "The images to learn from must have all classes. "
            f"Received: none of {', '.join(unknown[:5])}"
        )
    recorded = train.record.get("class_names")
    # The choice of images depends on the order of the classes.
    is_same = recorded and recorded == test.record.get("class_names")
    return recorded if is_same else sorted(known)


def check_same_model(*stores):
    """Raise `ValueError` unless the features of all stores are of one model and setting."""
    facts = [
        [store.record.get(name) for name in ("digest_of_model", "dtype", "image_size")]
        for store in stores
    ]
    if any(other != facts[0] for other in facts):
        models = ", ".join(str(store.record.get("model")) for store in stores)
        raise ValueError(
            "Features must be of the same model, type and image size to be compared. "
            f"Received: those of {models}"
        )


def _labels_of(store):
    labels = store.labels
    if labels is None or not all(isinstance(label, str) for label in labels):
        raise ValueError(
            "Each image must have the name of one class: predict a dataset such as `folder:PATH`. "
            f"Received: {store.record['images']}, whose images have "
            f"{'no labels' if labels is None else 'several labels or none'}"
        )
    return labels
