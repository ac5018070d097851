"""Images a second of ViT-B/16: keras_vit beside keras-hub and vit-keras, in one process.

    make bench
    python benchmarks/throughput.py --backend jax --dtype mixed_bfloat16

The packages take turns, run after run, so that a change of the machine's speed meets all of them.
Ratios are medians of the runs' ratios, keras_vit to the other; above 1.0 keras_vit is faster. The
other two compute the erf GELU, so ours is measured with it as well as with its own, the tanh GELU.
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

import tyro

WARMUP_RUNS = 2
RESULTS = pathlib.Path(__file__).parent / "results"
OURS = ("keras_vit", "keras_vit erf")


@dataclasses.dataclass
class Benchmark:
    """Compare forward passes and training steps of ViT-B/16."""

    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras backend."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Dtype policy."""
    image_size: int = 224
    """Side of the square images."""
    batch_size: int = 8
    """Images in a run."""
    runs: int = 12
    """Runs that are measured, of each package and task."""
    output: pathlib.Path | None = None
    """JSON file to write; benchmarks/results/throughput-BACKEND-DTYPE.json by default."""


def build_models(image_size):
    """The same architecture in each package that imports, linear head on the class token."""
    import keras

    import keras_vit

    models = {
        "keras_vit": keras_vit.ViT_B16(num_classes=1000, image_size=image_size),
        "keras_vit erf": keras_vit.ViT_B16(
            num_classes=1000, image_size=image_size, activation="gelu"
        ),
    }
    try:
        import keras_hub

        backbone = keras_hub.models.ViTBackbone(
            image_shape=(image_size, image_size, 3),
            patch_size=16,
            num_layers=12,
            num_heads=12,
            hidden_dim=768,
            mlp_dim=3072,
        )
        models["keras-hub"] = keras_hub.models.ViTImageClassifier(
            backbone=backbone,
            num_classes=1000,
            pooling="token",
            head_dtype="float32",
        )
    except ImportError as error:
        print(f"keras-hub is left out: {error}")
    try:
        from vit_keras import vit

        features = vit.vit_b16(
            image_size=image_size, pretrained=False, include_top=False, pretrained_top=False
        )
        logits = keras.layers.Dense(1000, dtype="float32")(features.output)
        models["vit-keras"] = keras.Model(features.input, logits)
    except ImportError as error:
        print(f"vit-keras is left out: {error}")
    for model in models.values():
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return models


def measure(models, step, runs):
    """Seconds of each run, the packages taking turns."""
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
    """Prints and returns images a second, and the ratios of ours to the others."""
    results = {}
    for name, times in seconds.items():
        results[name] = {"images_per_second": batch_size / statistics.median(times)}
        print(f"{task:8}  {name:14} {results[name]['images_per_second']:8.2f} images/s")
    for name in [name for name in seconds if name not in OURS]:
        for ours in OURS:
            pairs = zip(seconds[name], seconds[ours], strict=True)
            ratios = [their / our for their, our in pairs]
            median = statistics.median(ratios)
            results[name][f"ratio of {ours}"] = [median, min(ratios), max(ratios)]
            print(
                f"{task:8}  {ours} is {median:.2f} times as fast as {name}"
                f" ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    return results


def versions(backend):
    """Machine and package versions, for the record."""
    packages = ("keras", "keras-hub", "vit-keras", "numpy", backend)
    installed = {package.metadata["Name"] for package in metadata.distributions()}
    return {
        "machine": f"{processor_name()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages if name in installed},
    }


def processor_name():
    """The processor's name, where Linux tells it."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main():
    """Measures and reports."""
    options = tyro.cli(Benchmark)
    os.environ["KERAS_BACKEND"] = options.backend
    import keras
    import numpy as np

    keras.config.set_dtype_policy(options.dtype)
    models = build_models(options.image_size)
    rng = np.random.default_rng(0)
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    images = rng.uniform(-1, 1, shape).astype("float32")
    labels = rng.integers(0, 1000, options.batch_size)

    results = {"versions": versions(options.backend), "options": vars(options)}
    forward = measure(models, lambda model: model.predict_on_batch(images), options.runs)
    results["forward"] = summarise("forward", forward, options.batch_size)
    training = measure(models, lambda model: model.train_on_batch(images, labels), options.runs)
    results["training"] = summarise("training", training, options.batch_size)
    report = json.dumps(results, indent=2, default=str)
    output = options.output or RESULTS / f"throughput-{options.backend}-{options.dtype}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
