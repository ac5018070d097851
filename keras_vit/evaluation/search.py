"""The most similar images by their features."""

import dataclasses
import importlib.util

import numpy as np

from keras_vit.core.arguments import check_integer

# Similarities in memory at once.
_PAIRS = 2**25


def nearest(features, queries, count=5):
    """Find the features with the greatest cosine similarity to each query. The search is exact.

    Args:
        features: float array `(images, width)`.
        queries: float array `(queries, width)`.
        count: number of images for each query; fewer if there are not so many.

    Returns:
        `(indices, similarities)`: int64 and float32 arrays `(queries, count)`, the most similar
        first.

    Raises:
        ValueError: if the arrays do not fit, or values are not finite.

    Example:
    >>> features = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> nearest(features, [[0.0, 1.0]], count=2)[0]
    array([[1, 2]])
    """
    check_integer("count", count, 1)
    features, queries = _normalized("features", features), _normalized("queries", queries)
    if features.shape[1] != queries.shape[1]:
        raise ValueError(
            "`queries` must have the width of `features`. "
            f"Received: {queries.shape[1]} and {features.shape[1]}"
        )
    count = min(count, len(features))
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        index = faiss.IndexFlatIP(features.shape[1])
        index.add(features)
        similarities, indices = index.search(queries, count)
        return indices, similarities
    step = max(1, _PAIRS // len(features))
    starts = range(0, len(queries), step)
    found = [_search(features, queries[start : start + step], count) for start in starts]
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


def _search(features, queries, count):
    scores = queries @ features.T
    best = np.argpartition(scores, -count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
    best = np.take_along_axis(best, order, 1)
    return best, np.take_along_axis(scores, best, 1)


@dataclasses.dataclass(frozen=True)
class SimilarImages:
    """The result of `find_similar`.

    Args:
        pairs: tuples `(similarity, id, other, other_id)`: the index of the set of the other image
            and its id; the most similar first.
    """

    pairs: tuple[tuple[float, str, int, str], ...]

    # Why the images are left out, after "images that".
    reason = "are in a test set"

    @property
    def ids(self):
        """Ids of the images to leave out."""
        return [id for _, id, _, _ in self.pairs]


def find_similar(store, others, min_similarity):
    """Find for each image the most similar one of other sets, if it is similar enough.

    Args:
        store: `FeatureStore` of the images to search.
        others: list of `FeatureStore`s of the same model.
        min_similarity: least cosine similarity, above 0 and up to 1.

    Returns:
        `SimilarImages`.

    Raises:
        ValueError: as `nearest`, or if `min_similarity` is out of range.
    """
    if not 0 < min_similarity <= 1:
        raise ValueError(
            "`min_similarity` must be above 0 and at most 1. "
            f"Received: min_similarity={min_similarity}"
        )
    best = np.full(len(store.ids), -np.inf), np.zeros(len(store.ids), int), store.ids.copy()
    for number, other in enumerate(others):
        indices, similarities = (found[:, 0] for found in other.search(store.features, 1))
        is_better = similarities > best[0]
        for column, values in zip(best, (similarities, number, other.ids[indices]), strict=True):
            np.copyto(column, values, where=is_better, casting="unsafe")
    rows = zip(best[0].tolist(), store.ids, best[1].tolist(), best[2], strict=True)
    return SimilarImages(
        tuple(sorted((row for row in rows if row[0] >= min_similarity), reverse=True))
    )


def _normalized(name, vectors):
    vectors = np.ascontiguousarray(vectors, "float32")
    if vectors.ndim != 2 or not len(vectors):
        raise ValueError(f"`{name}` must be `(images, width)`. Received: shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError(f"`{name}` must be finite. Received: NaN or infinity")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo("float32").tiny)
