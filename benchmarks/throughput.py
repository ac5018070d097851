"""Measure the images per second of keras_vit and of other packages.

    make bench
    python benchmarks/throughput.py --backend jax --dtype mixed_bfloat16
    python benchmarks/throughput.py --model BiT_R50x1 --backend torch

The packages take turns in one process, so that a change of the machine's speed affects all of them.
Ratios are medians of the runs' ratios of keras_vit to the other package; above 1.0 keras_vit is
faster. The other packages compute the erf GELU, so our Transformers are measured with the erf GELU
and with their default, the tanh GELU. The packages are keras-hub, vit-keras and ZeroModels, and
with `--backend torch` also timm and transformers, under `torch.autocast` in half precision. Our
forward pass is a step of `predict` of `for_inference(model)`, our training step is a step of
`train`: the last block of our Transformers computes the class token only.
"""

import dataclasses
import json
import os
import pathlib
import platform
import statistics
import time
from importlib import metadata
from typing import Literal

from peers import PEERS, compiled

WARMUP_RUNS = 2
RESULTS = pathlib.Path(__file__).parent / "results"
OURS = ("keras_vit", "keras_vit erf")


@dataclasses.dataclass
class Benchmark:
    """Compare forward passes and training steps."""

    model: Literal["ViT_B16", "R50_B16", "BiT_R50x1"] = "ViT_B16"
    """Name of a builder."""
    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras backend."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Dtype policy."""
    image_size: int = 224
    """Side of the square images."""
    batch_size: int = 8
    """Images in a run."""
    runs: int = 12
    """Number of measured runs of each package and task."""
    output: pathlib.Path | None = None
    """JSON file to write; benchmarks/results/throughput-MODEL-BACKEND-DTYPE.json by default."""


def build_models(name, image_size):
    """Build our model, and the same model of each installed package, with a linear head."""
    import keras_vit
    from keras_vit.models.unused_tokens import without_unused_tokens

    build = getattr(keras_vit, name)
    models = {"keras_vit": build(num_classes=1000, image_size=image_size)}
    if not name.startswith("BiT"):
        models["keras_vit erf"] = build(1000, image_size, activation="gelu")
    models = {ours: compiled(without_unused_tokens(model)) for ours, model in models.items()}
    for peer, make in PEERS[name].items():
        try:
            models[peer] = make(image_size)
        except ImportError as error:
            print(f"{peer} is left out: {error}")
    return models


def measure(models, step, runs):
    """Return the seconds of each run; the packages take turns."""
    for model in models.values():
        for _ in range(WARMUP_RUNS):
            step(model)
    seconds = {name: [] for name in models}
    for _ in range(runs):
        for name, model in models.items():
            start = time.perf_counter()
            step(model)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def summarise(task, seconds, batch_size):
    """Print and return images per second, and the ratios of our model to the others."""
    results = {}
    for name, times in seconds.items():
        results[name] = {"images_per_second": batch_size / statistics.median(times)}
        print(f"{task:8}  {name:22} {results[name]['images_per_second']:8.2f} images/s")
    for name in [name for name in seconds if name not in OURS]:
        for ours in [name for name in OURS if name in seconds]:
            pairs = zip(seconds[name], seconds[ours], strict=True)
            ratios = [their / our for their, our in pairs]
            median = statistics.median(ratios)
            results[name][f"ratio of {ours}"] = [median, min(ratios), max(ratios)]
            print(
                f"{task:8}  {ours} is {median:.2f} times as fast as {name}"
                f" ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    return results


def versions(*backends):
    """Return the machine and the versions of the packages, for the results."""
    packages = (
        "keras",
        "keras-hub",
        "vit-keras",
        "zeromodels",
        "timm",
        "transformers",
        "numpy",
        *backends,
    )
    installed = {package.metadata["Name"] for package in metadata.distributions()}
    return {
        "machine": f"{processor_name()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages if name in installed},
    }


def processor_name():
    """Return the name of the processor, if Linux has it."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main():
    """Measure and report."""
    # gpu.py imports this module on machines without tyro.
    import tyro

    options = tyro.cli(Benchmark)
    os.environ["KERAS_BACKEND"] = options.backend
    import keras
    import numpy as np

    from keras_vit.models.inference import for_inference

    keras.config.set_dtype_policy(options.dtype)
    models = build_models(options.model, options.image_size)
    rng = np.random.default_rng(0)
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    images = rng.uniform(-1, 1, shape).astype("float32")
    labels = rng.integers(0, 1000, options.batch_size)

    results = {"versions": versions(options.backend), "options": vars(options)}
    for_inference = {
        name: for_inference(model) if name in OURS else model for name, model in models.items()
    }
    forward = measure(for_inference, lambda model: model.predict_on_batch(images), options.runs)
    results["forward"] = summarise("forward", forward, options.batch_size)
    training = measure(models, lambda model: model.train_on_batch(images, labels), options.runs)
    results["training"] = summarise("training", training, options.batch_size)
    report = json.dumps(results, indent=2, default=str)
    name = f"throughput-{options.model}-{options.backend}-{options.dtype}.json"
    output = options.output or RESULTS / name
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
