"""Datasets and images, on `tf.data`."""

import importlib

# Keras and TensorFlow are imported when one of these is asked for, not before.
_HOMES = {
    "AUGMENTATIONS": "images.augmentations",
    "Augmentation": "images.augmentations",
    "DATASETS": "sources.paper",
    "decode_predictions": "labels",
    "find_duplicates": "deduplication.groups",
    "find_source": "datasets",
    "hyper_rule_sizes": "images.transforms",
    "load": "datasets",
    "mask_patches": "masked_patches",
    "preprocess": "images.preprocessing",
    "write_ids": "deduplication.groups",
    "write_records": "sources.record_writer",
}

__all__ = list(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(f"keras_vit.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
