"""Seconds that few-shot evaluation takes once the features are there.

Features of random clusters, as many as those of ImageNet's validation images, are classified with
least squares, for all seeds. The images to learn from are as many as the greatest number of shots
needs, and a fifth more.

Example: python benchmarks/fewshot.py --shots 1 5 10 25
"""

import os
import resource
import time

import numpy as np
import tyro

from keras_vit.evaluation.fewshot import SEEDS, fewshot_accuracies


def clusters(rng, centres, count, noise):
    """Features and labels of so many examples, the same number of each class."""
    labels = rng.permutation(np.arange(count) % len(centres)).astype("int32")
    features = noise * rng.standard_normal((count, centres.shape[1]), dtype="float32")
    features += centres[labels]
    return features, labels


def main(
    tests: int = 50_000,
    width: int = 1024,
    classes: int = 1000,
    shots: tuple[int, ...] = (10,),
    noise: float = 4.0,
):
    """Measures one number of shots after the other."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, width), dtype="float32")
    num_examples = max(shots) * classes * 6 // 5
    train = clusters(rng, centres, num_examples, noise)
    test = clusters(rng, centres, tests, noise)
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
