"""Datasets and images, on `tf.data`."""

import importlib

# The files of the public names. They are imported when a name is used, because most of them import
# Keras and TensorFlow.
_HOMES = {
    "AUGMENTATIONS": "images.augmentations",
    "Augmentation": "images.augmentations",
    "DATASETS": "sources.paper",
    "DatasetInfo": "info",
    "Preprocessing": "images.preprocessing",
    "decode_predictions": "labels",
    "find_duplicates": "deduplication.groups",
    "find_source": "datasets",
    "hyper_rule_sizes": "images.transforms",
    "load": "datasets",
    "mask_patches": "masked_patches",
    "preprocess": "images.scaling",
    "write_ids": "deduplication.groups",
    "write_records": "sources.record_writer",
}

__all__ = list(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(f"keras_vit.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
