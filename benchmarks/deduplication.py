"""Measure the time and the memory of matching the hashes of large training sets with a test set.

The hashes are random, except that one in a thousand is a copy of a test image. Each size runs in
its own process. Hashing the images, which takes about a millisecond per image, is not measured.
"""

import multiprocessing
import resource
import tempfile
import time

import numpy as np
import tyro

from keras_vit.data.deduplication.copies import MAX_DISTANCE, Matcher
from keras_vit.data.deduplication.hashes import WORDS, Hashes, HashParts, view_colors
from keras_vit.data.sources.source import Source

_VIEWS = 26
_EVERY = 1000


def peak():
    """Return the peak memory of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def numbered(count):
    """Return a `Source` of numbered examples without images."""
    return Source(None, ("one",), np.arange(count), "{}.jpg".format)


def random_hashes(source, numbers, views, side, rng):
    """Return random `Hashes` of some examples."""
    words = rng.integers(0, 2**16, (len(numbers), views, WORDS), "uint16")
    colors = rng.integers(0, 256, (len(numbers), side, side, 3), "uint8")
    none = np.array([], "int64")
    return Hashes(source, numbers, words, colors, none, none)


def write_parts(parts, test, rng):
    """Write random parts with copies of test images, and return the number of copies."""
    twins = 0
    for part in range(parts.count):
        numbers = parts.numbers(part)
        hashes = random_hashes(parts.source, numbers, 1, 8, rng)
        for place in range(0, len(numbers), _EVERY):
            image = rng.integers(len(test.numbers))
            hashes.words[place, 0] = test.words[image, 0] ^ np.uint16(1)
            hashes.colors[place] = view_colors(test.colors[image], 0)
            twins += 1
        parts.store(part, hashes)
    return twins


def measure(count, test_images):
    """Print the seconds and the peak memory for a number of training hashes."""
    rng = np.random.default_rng(0)
    before = peak()
    source = numbered(test_images)
    test = random_hashes(source, source.numbers, _VIEWS, 16, rng)
    with tempfile.TemporaryDirectory() as scratch:
        parts = HashParts(numbered(count), scratch, "random")
        twins = write_parts(parts, test, rng)
        start, cpu = time.perf_counter(), time.process_time()
        matcher = Matcher([test], MAX_DISTANCE)
        found = sum(1 for hashes in parts for _ in matcher.match(hashes))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{count:,} hashes: {seconds:.0f} s, {cpu:.0f} s of CPU", end=" ")
    print(f"({cpu / count * 1e6:.1f} per million); {found} of {twins} twins found;", end=" ")
    print(f"peak {peak():.0f} MB, of which {before:.0f} MB after the imports", flush=True)


def main(millions: tuple[float, ...] = (1, 2, 5, 10), test_images: int = 10_000):
    """Measure each size.

    Args:
        millions: numbers of training hashes, in millions.
        test_images: number of images in the test set, with 26 hashes each.
    """
    for number in millions:
        arguments = (int(number * 1e6), test_images)
        process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    tyro.cli(main)
