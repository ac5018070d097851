"""Datasets and images, on `tf.data`."""

from keras_vit.data.labels import decode_predictions
from keras_vit.data.preprocessing import preprocess

__all__ = ["decode_predictions", "load", "preprocess"]


def __getattr__(name):
    # TensorFlow is imported when a dataset is asked for, not before.
    if name == "load":
        from keras_vit.data.datasets import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
