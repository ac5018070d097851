"""Evaluates under a strategy; a test compares what one process and several come to."""

import argparse
import json

import keras

from keras_vit.data.datasets import load
from keras_vit.data.processes import process
from keras_vit.evaluation.classification import evaluate, predictions
from keras_vit.evaluation.metrics import confusion_matrix
from keras_vit.training.distribution import strategy
from tests.test_evaluation import classifier

# Two batches of it divide neither the digits nor the images of the folder.
BATCH_SIZE = 50


def figures(name, data):
    """What a model that is built under a strategy is found to do with the images of a dataset."""
    with strategy(name).scope():
        share = load(data, "test", 8, BATCH_SIZE, shard=process())
        model = classifier(len(share.class_names))
        found = predictions(model, share)
        # Of a whole dataset that every process reads, each has all figures by itself.
        whole = load(data, "test", 8, BATCH_SIZE)
        assert evaluate(model, whole)["images"] == len(found.predicted)
    matrix = confusion_matrix(found.labels, found.predicted, len(found.class_names))
    return {**found.summary(), "confusion": matrix.tolist(), "share": share.num_examples}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy")
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--devices", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.devices > 1:
        import jax

        jax.config.update("jax_num_cpu_devices", arguments.devices)
    keras.utils.set_random_seed(0)
    print(json.dumps([figures(arguments.strategy, data) for data in arguments.data]))
