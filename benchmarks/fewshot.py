"""Measure the time of a few-shot evaluation of computed features.

The features are random clusters, as many as ImageNet has validation images. They are classified by
least squares, for all seeds. There are a fifth more training images than the greatest number of
shots needs.

Example: python benchmarks/fewshot.py --shots 1 5 10 25
"""

import os
import resource
import time

import numpy as np
import tyro

from keras_vit.evaluation.fewshot import SEEDS, fewshot_accuracies


def clusters(rng, centers, count, noise):
    """Return features and labels, with the same number of examples per class."""
    labels = rng.permutation(np.arange(count) % len(centers)).astype("int32")
    features = noise * rng.standard_normal((count, centers.shape[1]), dtype="float32")
    features += centers[labels]
    return features, labels


def main(
    tests: int = 50_000,
    width: int = 1024,
    classes: int = 1000,
    shots: tuple[int, ...] = (10,),
    noise: float = 4.0,
):
    """Measure each number of shots."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((classes, width), dtype="float32")
    num_examples = max(shots) * classes * 6 // 5
    train = clusters(rng, centers, num_examples, noise)
    test = clusters(rng, centers, tests, noise)
    print(f"{tests:,} x {width:,} features, {classes:,} classes, ", end="")
    print(f"{len(SEEDS)} seeds, {os.cpu_count()} cores")
    for count in shots:
        start = time.perf_counter()
        accuracies = fewshot_accuracies(*train, *test, classes, shots=(count,))
        seconds = time.perf_counter() - start
        mean = np.mean(list(accuracies.values()))
        print(f"{count:3d} shots: {seconds:6.1f} seconds, accuracy {mean:.4f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory: {peak:.1f} GiB")


if __name__ == "__main__":
    tyro.cli(main)
