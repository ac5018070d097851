"""Datasets and images, on `tf.data`."""

import importlib

# Keras and TensorFlow are imported when one of these is asked for, not before.
_HOMES = {
    "AUGMENTATIONS": "augmentations",
    "Augmentation": "augmentations",
    "DATASETS": "catalog",
    "decode_predictions": "labels",
    "find_duplicates": "duplicates",
    "find_source": "datasets",
    "hyper_rule_sizes": "images",
    "load": "datasets",
    "mask_patches": "patches",
    "preprocess": "preprocessing",
    "write_ids": "duplicates",
    "write_records": "record_writer",
}

__all__ = list(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(f"keras_vit.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
