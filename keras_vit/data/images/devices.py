"""Accelerators are hidden from TensorFlow where it only reads images."""

import keras
import tensorflow as tf


def leave_accelerators():
    """Hide accelerators from TensorFlow if it is not the backend.

    TensorFlow would reserve almost all of their memory at its first operation. A program that has
    used TensorFlow before is left as it is.
    """
    if keras.backend.backend() == "tensorflow":
        return
    for kind in ("GPU", "TPU"):
        try:
            tf.config.set_visible_devices([], kind)
        except RuntimeError:
            # "Visible devices cannot be modified after being initialized".
            return
