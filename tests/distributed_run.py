"""Trains a small model under a strategy; a test compares what different strategies come to."""

import argparse
import json

import keras

from keras_vit.data.datasets import load
from keras_vit.data.processes import process
from keras_vit.training.distribution import strategy
from keras_vit.training.fit import fit
from tests.small_runs import CLASSES, small_model, small_recipe


def train(name, workdir, model_shards=None, accumulation_steps=1):
    """The metrics of a short run under a strategy."""
    recipe = small_recipe(
        batch_size=16,
        steps=20,
        clip_norm=0.1,
        average_momentum=0.9,
        accumulation_steps=accumulation_steps,
    )
    with strategy(name, model_shards).scope():
        keras.utils.set_random_seed(0)
        # Heads for 4 shards.
        model = small_model(recipe, num_heads=4)
        index, count = process()
        batch_size = recipe.batch_size // accumulation_steps // count
        # In the dataset's order, processes share the batches that one process has.
        options = {"image_size": 8, "batch_size": batch_size, "classes": CLASSES}
        train = load("digits", "train", **options, shard=(index, count), repeat=True)
        validation = load("digits", "validation", **options, shard=(index, count))
        for dataset, split in ((train, "train"), (validation, "validation")):
            dataset.num_examples = load("digits", split, **options).num_examples
        return fit(recipe, model, (train, validation), workdir)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy")
    parser.add_argument("--workdir")
    parser.add_argument("--model-shards", type=int)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--accumulation-steps", type=int, default=1)
    arguments = parser.parse_args()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * arguments.devices
        tf.config.set_logical_device_configuration(cpu, parts)
    elif arguments.devices > 1:
        import jax

        jax.config.update("jax_num_cpu_devices", arguments.devices)
    metrics = train(
        arguments.strategy,
        f"{arguments.workdir}/run",
        arguments.model_shards,
        arguments.accumulation_steps,
    )
    print(json.dumps(metrics))
