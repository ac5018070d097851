"""Measure the time per step of a training run, with its callbacks, relative to a bare loop.

    python benchmarks/run_overhead.py

A run is `keras_vit.training.train`. Its time per step is the logged time, without the first step
and without saving models and states after an epoch. The loop only calls the compiled training step
of the same model on the same batches. The two take turns.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
import time

import tyro
from throughput import RESULTS, versions


@dataclasses.dataclass
class Benchmark:
    """Compare the steps of a run with the steps of a bare loop, on TensorFlow."""

    steps: int = 12
    """Steps of a run and of a loop."""
    runs: int = 10
    """Number of measured runs of each."""
    output: pathlib.Path | None = None
    """JSON file to write; results/run_overhead.json if it is not given."""


def measure(name, batch_size, options):
    """Return the seconds per step of each run, and of the loop after each."""
    import keras_vit
    from keras_vit.training import RECIPES, load_training_data
    from keras_vit.training import train as train_by_recipe

    recipe = dataclasses.replace(
        RECIPES["finetune"],
        image_size=224,
        batch_size=batch_size,
        steps=options.steps,
        warmup_steps=2,
    )
    train = load_training_data(recipe, "digits")[0].batches()
    model = getattr(keras_vit, name)(num_classes=10)
    seconds = {"run": [], "loop": []}
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as workdir:
            train_by_recipe(recipe, model, (train, None), pathlib.Path(workdir) / "run")
        speed = model.history.history["images_per_second"][0]
        seconds["run"].append(batch_size / speed)
        seconds["loop"].append(bare_loop(model, train, options.steps))
    return seconds


def bare_loop(model, train, steps):
    """Return the seconds of the compiled training step, without the first step."""
    batches = iter(train)
    model.train_function(batches)
    start = time.perf_counter()
    for _ in range(steps - 1):
        logs = model.train_function(batches)
    float(logs["loss"])
    return (time.perf_counter() - start) / (steps - 1)


def main():
    """Measure and report."""
    options = tyro.cli(Benchmark)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    results = {"versions": versions("tensorflow"), "options": vars(options)}
    for name, batch_size in (("ViT_B16", 8), ("ViT_Ti16", 64)):
        seconds = measure(name, batch_size, options)
        ratios = [run / loop for run, loop in zip(seconds["run"], seconds["loop"], strict=True)]
        spread = [statistics.median(ratios), min(ratios), max(ratios)]
        milliseconds = {what: 1000 * statistics.median(times) for what, times in seconds.items()}
        results[name] = {"batch_size": batch_size, "milliseconds": milliseconds, "ratio": spread}
        print(
            f"{name:8}  batch {batch_size:3}  run {milliseconds['run']:.0f} ms, loop "
            f"{milliseconds['loop']:.0f} ms per step, ratio "
            "{:.3f} ({:.3f} to {:.3f})".format(*spread)
        )
    output = options.output or RESULTS / "run_overhead.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2, default=str) + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
