"""Seconds that few-shot evaluation takes once the features are there.

Features of random clusters, as many as those of ImageNet's validation images, are classified with
least squares, for all seeds. The images to learn from are as many as the greatest number of shots
needs, and a fifth more.

Example: python benchmarks/fewshot.py --shots 1 5 10 25
"""

import argparse
import os
import resource
import time

import numpy as np

from keras_vit.evaluation.fewshot import SEEDS, fewshot_accuracies


def clusters(rng, centres, count, noise):
    """Features and labels of so many examples, the same number of each class."""
    labels = rng.permutation(np.arange(count) % len(centres)).astype("int32")
    features = noise * rng.standard_normal((count, centres.shape[1]), dtype="float32")
    features += centres[labels]
    return features, labels


def main():
    """Measures one number of shots after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--shots", type=int, nargs="+", default=[10])
    parser.add_argument("--noise", type=float, default=4.0)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((options.classes, options.width), dtype="float32")
    num_examples = max(options.shots) * options.classes * 6 // 5
    train = clusters(rng, centres, num_examples, options.noise)
    test = clusters(rng, centres, options.tests, options.noise)
    print(f"{options.tests:,} x {options.width:,} features, {options.classes:,} classes, ", end="")
    print(f"{len(SEEDS)} seeds, {os.cpu_count()} cores")
    for shots in options.shots:
        start = time.perf_counter()
        accuracies = fewshot_accuracies(*train, *test, options.classes, shots=(shots,))
        seconds = time.perf_counter() - start
        mean = np.mean(list(accuracies.values()))
        print(f"{shots:3d} shots: {seconds:6.1f} seconds, accuracy {mean:.4f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory: {peak:.1f} GiB")


if __name__ == "__main__":
    main()
