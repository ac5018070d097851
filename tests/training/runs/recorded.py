"""The images of a folder and of a run that was trained on it."""

from keras_vit.data import find_source
from keras_vit.data.fingerprints import fingerprints
from keras_vit.training.runs.trained_on import images_trained_on


def images_of(photos, split):
    return fingerprints(find_source(f"folder:{photos}", split))


def trained_ids(root):
    return set(images_trained_on(root / "run").ids)
