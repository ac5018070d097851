"""Measure the speed of RandAugment against the policy of keras-cv.

    python benchmarks/augmentation.py

The policy of keras-cv has fewer and other operations. Both apply two operations per image, in a
graph, one image at a time on one core. They take turns; the ratio is that of the medians.
"""

import dataclasses
import statistics
import time

import keras_cv
import numpy as np
import tensorflow as tf
import tyro

from keras_vit.data.images.augment import rand_augment


@dataclasses.dataclass
class Benchmark:
    """Compare images per second."""

    image_size: int = 224
    """Side of the square images."""
    magnitude: float = 15
    """Magnitude of RandAugment."""
    images: int = 200
    """Images in a round."""
    rounds: int = 7
    """Rounds of each policy."""


def keras_cv_policy(magnitude):
    """Return a function that applies two operations of keras-cv to an image."""
    operations = keras_cv.layers.RandAugment.get_standard_policy((0, 255), magnitude / 30, 0.0)

    @tf.function
    def augment(image, seed):
        for _ in range(2):
            choice = tf.random.uniform((), maxval=len(operations) + 1, dtype=tf.int32)
            branches = [lambda one=one, image=image: one(image) for one in operations]
            image = tf.switch_case(choice, [*branches, lambda image=image: image])
        return image

    return augment


def main():
    """Measure, and print the medians and their ratio."""
    options = tyro.cli(Benchmark)
    shape = (options.image_size, options.image_size, 3)
    image = np.random.default_rng(0).uniform(0, 255, shape).astype("float32")
    functions = {
        "keras_vit": rand_augment(2, options.magnitude),
        "keras_cv": keras_cv_policy(options.magnitude),
    }
    speeds = {name: [] for name in functions}
    for number in range(options.rounds + 1):
        for name, function in functions.items():
            begin = time.perf_counter()
            for index in range(options.images):
                function(image, tf.constant([index, number], tf.int64))
            if number:
                speeds[name].append(options.images / (time.perf_counter() - begin))
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    for name, median in medians.items():
        print(f"{name:10} {median:8.0f} images/s ({min(speeds[name]):.0f}-{max(speeds[name]):.0f})")
    print(f"ratio {medians['keras_vit'] / medians['keras_cv']:.2f}")


if __name__ == "__main__":
    main()
