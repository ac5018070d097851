"""Read, compare and search the features that `keras-vit predict --outputs features` writes."""

import dataclasses
import importlib.util
import json
import logging
import pathlib

import numpy as np
import pyarrow.compute
import pyarrow.dataset

from keras_vit.core.arguments import as_objects
from keras_vit.data.inputs import PREDICTIONS_RECORD, find_images
from keras_vit.evaluation.fewshot import SEEDS, fewshot_accuracies

# Number of similarities to compute at once.
_PAIRS = 2**25


@dataclasses.dataclass(frozen=True)
class FeatureStore:
    """The features of a dataset.

    Args:
        ids: object array of the ids of the images that could be decoded.
        features: float32 array `(images, width)`.
        labels: object array of the class names of the images, or `None`.
        record: dictionary of the recorded settings: `model`, `digest_of_model`, `images`, `split`
            and others.
    """

    ids: np.ndarray
    features: np.ndarray
    labels: np.ndarray | None
    record: dict

    def search(self, queries, count=5):
        """Find the most similar images, as `keras_vit.evaluation.feature_store.nearest` does."""
        return nearest(self.features, queries, count)

    def images(self):
        """Return the images as `ImageRows`; raise `ValueError` if images have changed."""
        images = find_images(*(self.record[name] for name in ("images", "split", "data_dir")))
        if images.digest() != self.record["digest_of_images"]:
            raise ValueError(
                "The images to draw must not have changed since their features were computed. "
                f"Received: {self.record['images']}, which have changed"
            )
        return images


def is_store(path):
    """Whether a path is a directory of predictions."""
    return pathlib.Path(path, PREDICTIONS_RECORD).is_file()


def read_features(folder):
    """Read the features of a dataset.

    Args:
        folder: directory `DIR` of `keras-vit predict MODEL DATA --output DIR --outputs features`.

    Returns:
        A `FeatureStore` of the images that could be decoded; the number of other images is logged.

    Raises:
        ValueError: if the predictions of some images are missing.
        OSError: if `folder` is not a directory of predictions.

    Example:
    >>> from keras_vit.distributed.batch import Job
    >>> keras_vit.ViT_Ti16(num_classes=3, image_size=16).save(tmp_path / "model.keras")
    >>> predictor = keras_vit.serving.Predictor(tmp_path / "model.keras", ["features"])
    >>> job = Job(predictor, ("digits",), tmp_path / "features", "test")
    >>> job.begin()
    >>> job.write(0)
    (359, 0)
    >>> read_features(tmp_path / "features").features.shape
    (359, 192)
    """
    folder = pathlib.Path(folder).expanduser()
    record = json.loads((folder / PREDICTIONS_RECORD).read_text(encoding="utf-8"))
    dataset = pyarrow.dataset.dataset(folder, format="parquet")
    label = ["label"] if "label" in dataset.schema.names else []
    table = dataset.to_table(columns=["id", "features", "error", *label])
    if len(table) != record["num_images"]:
        raise ValueError(
            f"All {record['num_images']} images must have a row: run the command again. "
            f"Received: {str(folder)!r} with {len(table)} rows"
        )
    decoded = table.filter(pyarrow.compute.is_null(table["error"]))
    if len(decoded) < len(table):
        logging.getLogger("keras_vit").warning(
            "%d of %d images in %s have no features, because they cannot be decoded",
            len(table) - len(decoded),
            len(table),
            folder,
        )
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in decoded["features"].chunks])
    ids = as_objects(decoded["id"].to_pylist())
    labels = as_objects(decoded["label"].to_pylist()) if label else None
    return FeatureStore(ids, flat.reshape(len(ids), -1), labels, record)


def evaluate_stores(train, test, shots=None, seeds=SEEDS, method="least-squares", l2=None):
    """Fit few-shot classifiers to the features of one store, and classify those of another store.

    Args:
        train: `FeatureStore` of the training images, with one class per image.
        test: `FeatureStore` of the test images, computed with the same model.
        shots: as in `keras_vit.evaluation.fewshot_accuracies`.
        seeds: as in `keras_vit.evaluation.fewshot_accuracies`.
        method: as in `keras_vit.evaluation.fewshot_accuracies`.
        l2: as in `keras_vit.evaluation.fewshot_accuracies`.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy on `test`.

    Raises:
        ValueError: if the stores were computed with different models or have common images, or
            `test` has a class that `train` lacks.
    """
    check_same_model(train, test)
    common = set(train.ids) & set(test.ids)
    if common and train.record["images"] == test.record["images"]:
        raise ValueError(
            "The images to learn from and those to classify must be different. "
            f"Received: {len(common)} common images"
        )
    names = _class_names(train, test)
    numbers = {name: number for number, name in enumerate(names)}
    columns = []
    for store in (train, test):
        columns += [store.features, np.array([numbers[label] for label in store.labels], "int32")]
    return fewshot_accuracies(*columns, len(names), shots, seeds, method, l2)


def check_same_model(*stores):
    """Raise `ValueError` unless all stores have the same model, dtype and image size."""
    records = [
        [store.record.get(name) for name in ("digest_of_model", "dtype", "image_size")]
        for store in stores
    ]
    if any(other != records[0] for other in records):
        models = ", ".join(str(store.record.get("model")) for store in stores)
        raise ValueError(
            "Compared features must have the same model, dtype and image size. "
            f"Received: features of {models}"
        )


def _class_names(train, test):
    """Return the class names, in the recorded order if both stores have this order, else sorted."""
    known = set(train.labels)
    if unknown := sorted(set(test.labels) - known):
        raise ValueError(
            "The images to learn from must have all classes. "
            f"Received: none of {', '.join(unknown[:5])}"
        )
    recorded = train.record.get("class_names")
    # The choice of images depends on the order of the classes.
    is_same = recorded and recorded == test.record.get("class_names")
    return recorded if is_same else sorted(known)


def nearest(features, queries, count=5):
    """Find the features with the greatest cosine similarity to each query. The search is exact.

    Args:
        features: float array `(images, width)`.
        queries: float array `(queries, width)`.
        count: number of images per query, at most the number of features.

    Returns:
        `(indices, similarities)`: int64 and float32 arrays `(queries, count)`, the most similar
        features first.

    Raises:
        ValueError: if values are not finite.

    Example:
    >>> features = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> nearest(features, [[0.0, 1.0]], count=2)[0]
    array([[1, 2]])
    """
    features, queries = _normalized("features", features), _normalized("queries", queries)
    count = min(count, len(features))
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        index = faiss.IndexFlatIP(features.shape[1])
        index.add(features)
        similarities, indices = index.search(queries, count)
        return indices, similarities
    chunks, step = [], max(1, _PAIRS // len(features))
    for start in range(0, len(queries), step):
        scores = queries[start : start + step] @ features.T
        best = np.argpartition(scores, -count, axis=1)[:, -count:]
        similarities = np.take_along_axis(scores, best, 1)
        order = np.argsort(-similarities, axis=1, kind="stable")
        chunks.append([np.take_along_axis(array, order, 1) for array in (best, similarities)])
    return tuple(np.concatenate(columns) for columns in zip(*chunks, strict=True))


def _normalized(name, vectors):
    vectors = np.ascontiguousarray(vectors, "float32")
    if not np.isfinite(vectors).all():
        raise ValueError(f"`{name}` must be finite. Received: NaN or infinity")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo("float32").tiny)


@dataclasses.dataclass(frozen=True)
class SimilarImages:
    """The result of `find_similar`.

    Args:
        pairs: tuples `(similarity, id, set, other_id)`, the most similar pair first; `set` is the
            index of the set that contains the image `other_id`.
    """

    pairs: tuple[tuple[float, str, int, str], ...]

    # The end of the comment "images that ..." in the file that `write_ids` writes.
    reason = "are in a test set"

    @property
    def ids(self):
        """Ids of the images to leave out."""
        return [id for _, id, _, _ in self.pairs]


def find_similar(store, others, min_similarity):
    """Find for each image the most similar image in other sets, if it is similar enough.

    Args:
        store: `FeatureStore` of the images.
        others: list of `FeatureStore`s of the other sets, computed with the same model.
        min_similarity: least cosine similarity, above 0 and up to 1.

    Returns:
        `SimilarImages`.

    Raises:
        ValueError: as in `nearest`, or if `min_similarity` is out of range.
    """
    if not 0 < min_similarity <= 1:
        raise ValueError(
            "`min_similarity` must be above 0 and at most 1. "
            f"Received: min_similarity={min_similarity}"
        )
    best = np.full(len(store.ids), -np.inf), np.zeros(len(store.ids), int), store.ids.copy()
    for number, other in enumerate(others):
        indices, similarities = (column[:, 0] for column in other.search(store.features, 1))
        is_better = similarities > best[0]
        for column, values in zip(best, (similarities, number, other.ids[indices]), strict=True):
            np.copyto(column, values, where=is_better, casting="unsafe")
    rows = zip(best[0].tolist(), store.ids, best[1].tolist(), best[2], strict=True)
    return SimilarImages(
        tuple(sorted((row for row in rows if row[0] >= min_similarity), reverse=True))
    )
