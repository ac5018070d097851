"""Digests of data, to detect changes when results are resumed."""

from keras_vit.data.loading import find_source
from keras_vit.data.sources.kinds import find_kind

_SUFFIX = "_digest"


def data_digests(name, splits, classes=None, prefix=""):
    """Return a dictionary of digests of splits; empty unless the kind of dataset is digested."""
    kind, _ = find_kind(name)
    if kind is None or not kind.is_digested:
        return {}
    return {
        f"{prefix}{split}{_SUFFIX}": find_source(name, split, classes).digest() for split in splits
    }
