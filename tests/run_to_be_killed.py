"""Trains a small model by a recipe; a test kills it, and starts it again."""

import dataclasses
import sys

import keras
import numpy as np

from keras_vit.training.fit import fit
from keras_vit.training.training_data import load_training_data
from tests.small_runs import CLASSES, small_model, small_recipe

RECIPE = small_recipe(
    batch_size=16,
    steps=60,
    warmup_steps=5,
    min_crop_area=0.5,
    average_momentum=0.9,
    accumulation_steps=2,
)


def train(workdir, recipe=RECIPE, source="digits", **options):
    """Trains in a directory, from its state where there is one; returns model and metrics."""
    keras.utils.set_random_seed(0)
    model = small_model(recipe, dropout=0.1)
    data = load_training_data(recipe, source, CLASSES)
    options = {"resume": True, "save_steps": 7, **options}
    return model, fit(recipe, model, data, workdir, **options)


if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    workdir, weights, steps = sys.argv[1:]
    model, _ = train(workdir, dataclasses.replace(RECIPE, steps=int(steps)))
    np.savez(weights, *[keras.ops.convert_to_numpy(v) for v in model.variables])
