"""Measure training steps of ViT-B/16: with remat, in bfloat16, by batch size, in other packages.

    python benchmarks/training.py
    python benchmarks/training.py --backend jax --runs 3

The compared configurations take turns in one process. Ratios are medians of the runs' ratios of
seconds per image to the first configuration; below 1.0 is faster. Peak memory is that of the host,
on Linux only: the peak of a fresh process for each configuration, minus its memory before the first
step. On CPUs, XLA merges computations that remat repeats, so `--backend jax` shows no less memory.
`gpu.py` measures GPUs.
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import statistics
from typing import Literal

import tyro
from peers import compiled, keras_hub_vit
from throughput import RESULTS, measure, versions

BF16_FLAGS = ("avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclasses.dataclass
class Benchmark:
    """Compare training steps of ViT-B/16."""

    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras backend."""
    image_size: int = 224
    """Side of the square images."""
    batch_size: int = 32
    """Images in a step with and without remat; the other comparisons use a quarter."""
    runs: int = 6
    """Number of measured runs of each configuration."""
    output: pathlib.Path | None = None
    """JSON file to write; benchmarks/results/training-BACKEND.json by default."""


def make_step(make_model, batch_size, image_size):
    """Return a function without arguments that trains on one batch."""
    import numpy as np

    model = make_model()
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch_size, image_size, image_size, 3)).astype("float32")
    labels = rng.integers(0, 1000, batch_size)
    return lambda: model.train_on_batch(images, labels)


def vit_step(batch_size, image_size, name="ViT_B16", **options):
    """Return a training step of one of our models."""
    import keras_vit

    build = getattr(keras_vit, name)
    return make_step(
        lambda: compiled(build(image_size=image_size, **options)), batch_size, image_size
    )


def peak_memory(*arguments, **options):
    """Return the bytes that two training steps take in addition to the model."""
    step = vit_step(*arguments, **options)
    before = memory_of_process("VmRSS")
    for _ in range(2):
        step()
    return memory_of_process("VmHWM") - before


def memory_of_process(field):
    """Return a field, in bytes, of the status of this process on Linux."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def in_fresh_process(function, *arguments, **options):
    """Return the result of a function in a fresh process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments, **options).result()


def compare(task, steps, batch_sizes, runs):
    """Print and return images per second, and ratios of the seconds per image to the first."""
    seconds = measure(steps, lambda step: step(), runs)
    per_image = {name: [s / batch_sizes[name] for s in times] for name, times in seconds.items()}
    first, results = next(iter(steps)), {}
    for name, times in per_image.items():
        ratios = [one / other for one, other in zip(times, per_image[first], strict=True)]
        median = statistics.median(ratios)
        results[name] = {
            "images_per_second": 1 / statistics.median(times),
            f"seconds per image to {first}": [median, min(ratios), max(ratios)],
        }
        print(
            f"{task:8}  {name:16} {1 / statistics.median(times):8.2f} images/s, "
            f"{median:.2f} times the seconds per image of {first}"
            f" ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return results


def compare_remat(batch_size, image_size, runs):
    """Compare memory and time with and without remat."""
    options = {"none": {}, "remat": {"remat": True}}
    # Return freed blocks to the system at once; otherwise holes in the heap would count.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    peaks = {
        name: in_fresh_process(peak_memory, batch_size, image_size, **o)
        for name, o in options.items()
    }
    del os.environ["MALLOC_MMAP_THRESHOLD_"]
    for name, peak in peaks.items():
        print(
            f"memory    {name:16} {peak / 2**30:8.2f} GiB, {peak / peaks['none']:.2f} times none's"
        )
    steps = {name: vit_step(batch_size, image_size, **o) for name, o in options.items()}
    times = compare("remat", steps, dict.fromkeys(steps, batch_size), runs)
    return {"batch_size": batch_size, "peak_bytes": peaks, "time": times}


def compare_dtypes(batch_size, image_size, runs):
    """Compare `mixed_bfloat16` with float32."""
    dtypes = ("float32", "mixed_bfloat16")
    steps = {dtype: vit_step(batch_size, image_size, dtype=dtype) for dtype in dtypes}
    return compare("dtype", steps, dict.fromkeys(steps, batch_size), runs)


def compare_batches(largest, image_size, runs):
    """Compare the time per image in batches of a quarter, a half and all of the largest."""
    sizes = {f"batch {size}": size for size in (largest // 4, largest // 2, largest)}
    steps = {name: vit_step(size, image_size) for name, size in sizes.items()}
    return compare("batch", steps, sizes, runs)


def compare_peers(batch_size, image_size, runs):
    """Compare our model, with the erf and the tanh GELU, with keras-hub."""
    try:
        theirs = make_step(lambda: keras_hub_vit(image_size), batch_size, image_size)
    except ImportError as error:
        print(f"keras-hub is left out: {error}")
        return {}
    steps = {
        "keras-hub": theirs,
        "keras_vit erf": vit_step(batch_size, image_size, activation="gelu"),
        "keras_vit": vit_step(batch_size, image_size),
    }
    return compare("peers", steps, dict.fromkeys(steps, batch_size), runs)


def cpu_flags():
    """Return the bfloat16 instructions of the processor, as Linux reports them."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    words = cpuinfo.read_text().split() if cpuinfo.is_file() else []
    return [flag for flag in BF16_FLAGS if flag in words]


def main():
    """Measure and report."""
    options = tyro.cli(Benchmark)
    os.environ["KERAS_BACKEND"] = options.backend
    size, smaller, runs = options.image_size, options.batch_size // 4, options.runs
    results = {"versions": versions(options.backend), "options": vars(options)}
    results["cpu_flags"] = cpu_flags()
    print(f"CPU flags for bfloat16: {', '.join(results['cpu_flags']) or 'none'}")
    # First, while this process is small: its child processes begin with its memory.
    results["remat"] = compare_remat(options.batch_size, size, runs)
    results["dtype"] = compare_dtypes(smaller, size, runs)
    results["batch"] = compare_batches(options.batch_size, size, runs)
    results["peers"] = compare_peers(smaller, size, runs)
    output = options.output or RESULTS / f"training-{options.backend}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2, default=str) + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
