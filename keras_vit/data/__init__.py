"""Datasets and images, on `tf.data`."""

import importlib

from keras_vit.data.augmentations import AUGMENTATIONS, Augmentation
from keras_vit.data.labels import decode_predictions
from keras_vit.data.preprocessing import preprocess

# TensorFlow is imported when one of these is asked for, not before.
_ON_TENSORFLOW = {
    "DATASETS": "catalog",
    "hyper_rule_sizes": "images",
    "load": "datasets",
    "write_records": "records",
}

__all__ = ["AUGMENTATIONS", "Augmentation", "decode_predictions", "preprocess", *_ON_TENSORFLOW]


def __getattr__(name):
    if name in _ON_TENSORFLOW:
        return getattr(importlib.import_module(f"keras_vit.data.{_ON_TENSORFLOW[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
