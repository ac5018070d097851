"""Digests of data, to detect changes when results are resumed."""

from keras_vit.data.loading import find_source
from keras_vit.data.sources.kinds import find_kind

_SUFFIX = "_digest"


def data_digests(name, splits, classes=None, prefix=""):
    """Return a dictionary of digests of splits; empty for TensorFlow Datasets."""
    kind, _ = find_kind(name)
    # They have versions, and may be too large to be read.
    if kind is None or kind.name == "tfds":
        return {}
    return {
        f"{prefix}{split}{_SUFFIX}": find_source(name, split, classes).digest() for split in splits
    }
