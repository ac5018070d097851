"""Batches of the digits, for tests of `load`."""

from keras_vit.data import load

DIGITS = {"name": "digits", "split": "train", "image_size": 8, "batch_size": 100}
NUM_TRAIN = 1258


def batches(count=-1, **options):
    return list(load(**{**DIGITS, **options}).take(count).as_numpy_iterator())
