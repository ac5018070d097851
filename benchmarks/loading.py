"""Measure the time and peak memory of loading a checkpoint, next to plain NumPy.

The script writes a file with the names and shapes of ViT-B/16 or ViT-L/16 and random values. Each
method of loading runs in its own process, several times in turns; times are the medians.

- `numpy`: `numpy.load` of each array, and assigning it to its variable.
- `load_checkpoint`: into a built model; all arrays are checked before the first is assigned.
- `from_checkpoint`: recognizes the file, builds the model and loads it. Its time is compared with
  that of building the model and of `numpy` together.

Memory is the growth of the process's peak while it builds and loads the model, in units of the file
plus the model.

Example: python benchmarks/loading.py --variant ViT_L16
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WAYS = ("numpy", "load_checkpoint", "from_checkpoint")


def peak_bytes():
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_file(variant, path, compressed):
    """Write a file of a variant in Google's layout, with random values."""
    import keras
    import numpy as np

    import keras_vit

    model = getattr(keras_vit, variant)()
    for variable in model.weights:
        variable.assign(keras.random.normal(variable.shape))
    keras_vit.save_checkpoint(model, path, "google")
    if compressed:
        with np.load(path) as arrays:
            np.savez_compressed(path, **arrays)
    print(model.count_params())


def load(way, variant, path):
    """Load in this process, and print seconds and bytes."""
    import numpy as np

    import keras_vit
    from keras_vit.checkpoints.formats.google import GOOGLE_ROWS
    from keras_vit.checkpoints.weight_map import entries

    build = getattr(keras_vit, variant)
    warm_up(keras_vit)
    before = peak_bytes()
    start = time.perf_counter()
    model = build() if way != "from_checkpoint" else None
    built = time.perf_counter()
    if way == "numpy":
        variables = {variable.path: variable for variable in model.weights}
        targets = {entry.source: entry.targets[0] for entry in entries(GOOGLE_ROWS, variables)[0]}
        with np.load(path) as arrays:
            for name in arrays.files:
                variables[targets[name]].assign(arrays[name])
    elif way == "load_checkpoint":
        keras_vit.load_checkpoint(model, path)
    else:
        model = keras_vit.from_checkpoint(path)
    end = time.perf_counter()
    print(json.dumps({"build": built - start, "load": end - built, "bytes": peak_bytes() - before}))


def warm_up(keras_vit):
    """Load a small model, because the first model of a process takes longer."""
    model = keras_vit.ViT_Ti16(image_size=32, num_classes=2)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tiny.npz"
        keras_vit.save_checkpoint(model, path, "google")
        keras_vit.from_checkpoint(path)
        keras_vit.load_checkpoint(model, path)


def measure(variant, path, runs):
    """Return the results of each method, measured `runs` times in turns."""
    results = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            results[way].append(json.loads(run_self(variant, path, "--way", way)))
    return results


def run_self(variant, path, *more):
    """Return the last line that a process prints; its peak memory starts at its parent's."""
    command = [sys.executable, __file__, "--variant", variant, "--file", str(path), *more]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return output.splitlines()[-1]


def report(variant, results, file_bytes, parameters):
    """Print a line for each method."""
    both = file_bytes + 4 * parameters
    median = {
        way: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for way, runs in results.items()
    }
    numpy = median["numpy"]
    print(f"{variant}: a file of {file_bytes / 2**20:,.0f} MiB, {parameters:,} parameters")
    print(f"{'':18}{'seconds':>9}{'of numpy':>10}{'peak MiB':>10}{'of file + model':>17}")
    for way in WAYS:
        seconds = median[way]["load"]
        base = numpy["load"] + (numpy["build"] if way == "from_checkpoint" else 0)
        peak = median[way]["bytes"]
        print(
            f"{way:18}{seconds:9.2f}{seconds / base:10.2f}{peak / 2**20:10,.0f}{peak / both:17.2f}"
        )
    print(f"(building the model takes {numpy['build']:.2f} seconds, in `from_checkpoint` included)")


def main():
    """Measure a variant, each loading in its own process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--variant", default="ViT_B16")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--compressed", action="store_true", help="a compressed .npz")
    parser.add_argument("--way", choices=("write", *WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way == "write":
        write_file(options.variant, options.file, options.compressed)
        return
    if options.way:
        load(options.way, options.variant, options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "random.npz"
        compressed = ["--compressed"] if options.compressed else []
        parameters = int(run_self(options.variant, path, "--way", "write", *compressed))
        results = measure(options.variant, path, options.runs)
        report(options.variant, results, path.stat().st_size, parameters)


if __name__ == "__main__":
    main()
