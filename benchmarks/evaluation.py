"""Measure the cost of features and attention distances against `model.predict`.

The model is ViT-B/16, on random images that are generated on the fly. Features and predictions take
turns. The attention distance is measured over some images and over ten times as many, to show
whether memory grows.
"""

import resource
import statistics
import time

import keras
import numpy as np
import tensorflow as tf
import tyro

import keras_vit
from keras_vit.inspection.analyses import attention_distance


def random_images(count, batch_size, image_size):
    """Return a dataset of random images, generated on the fly."""
    shape = (batch_size, image_size, image_size, 3)
    batches = tf.data.Dataset.range(count // batch_size)
    return batches.map(lambda i: tf.random.stateless_uniform(shape, tf.stack([i, i]), -1, 1))


def seconds_of(function, dataset):
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function(dataset)
    return time.perf_counter() - start


def peak_memory():
    """Return the peak memory of this process, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(count: int = 96, batch_size: int = 16, image_size: int = 224, runs: int = 5):
    """Print the ratio of the times, and the times and memory of the distances."""
    keras.utils.set_random_seed(0)
    model = keras_vit.ViT_B16(image_size=image_size)
    images = random_images(count, batch_size, image_size)
    ratios = []
    for _ in range(runs):
        predicting = seconds_of(lambda x: model.predict(x, verbose=0), images)
        # Each call builds its feature extractor, as for a user.
        extracting = seconds_of(lambda x: keras_vit.features(model, x), images)
        ratios.append(extracting / predicting)
    ratios = np.array(ratios[1:])
    print(f"features / predict on {count} images, tracing included: ", end="")
    print(f"median {statistics.median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f})")
    for number in (100, 1000):
        number -= number % batch_size
        seconds = seconds_of(
            lambda x: attention_distance(model, x), random_images(number, batch_size, image_size)
        )
        print(f"attention distance of {number} images: {seconds:.0f} s, ", end="")
        print(f"peak memory {peak_memory():.2f} GiB")


if __name__ == "__main__":
    tyro.cli(main)
