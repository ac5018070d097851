"""Measure the latency of a model's exports, and how their logits differ from `model.predict`.

    make bench
    python benchmarks/serving.py --model BiT_R50x1

All runtimes get the same random images and weights, on the CPU. Each runs in its own process,
because idle threads of some runtimes wait busily and slow others down. They take turns, so that a
change of the machine's speed affects all of them. The results are, for each batch size, the median
and the range of the milliseconds per batch; then the largest difference of the logits from Keras's,
and the share of images with the same top class.

The int8 files are calibrated on random images; with real images their logits differ less.
"""

import concurrent.futures
import itertools
import json
import multiprocessing
import pathlib
import statistics
import tempfile
import time

import numpy as np
import tqdm
import tyro
from throughput import RESULTS, versions

from keras_vit.serving.formats import FORMATS
from keras_vit.serving.runner import load_runner

# Least number of runs per turn, for batches that take long.
FEWEST_RUNS = 2
PRECISIONS = ("int8", "bfloat16")


def load_keras(path):
    """Load the Keras model."""
    import keras

    model = keras.models.load_model(path)
    return lambda images: model.predict(images, len(images), verbose=0)


def load_saved_model(path):
    """Load the SavedModel, for preprocessed images."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    answer = loaded.signatures["serving_default"]
    return lambda images: answer(images=tf.constant(images))["logits"].numpy()


def load_transformers(path):
    """Load the weights in transformers, on torch."""
    import torch
    import transformers

    module = transformers.ViTForImageClassification.from_pretrained(path).eval()

    def run(images):
        with torch.inference_mode():
            return module(torch.from_numpy(images.transpose(0, 3, 1, 2))).logits.numpy()

    return run


def write_files(name, image_size, directory, calibration, with_transformers):
    """Write the files of a model for every runtime.

    Returns:
        A dictionary from the names of the runtimes to `(function that loads the file, path)`.
    """
    import keras

    import keras_vit

    model = getattr(keras_vit, name)(image_size=image_size)
    # A new head is zero, so all logits would be equal.
    kernel = model.get_layer("head").kernel
    kernel.assign(keras.random.normal(kernel.shape, stddev=0.02, seed=0))
    model.save(directory / "model.keras")
    saved_model = keras_vit.export(
        model, directory / "saved_model", signatures=("float",), warmup_batch_sizes=()
    )
    files = {
        "model.predict": (load_keras, directory / "model.keras"),
        "SavedModel": (load_saved_model, saved_model),
    }
    if with_transformers:
        keras_vit.save_checkpoint(model, directory / "transformers", format="huggingface")
        files["transformers"] = (load_transformers, directory / "transformers")
    for row in FORMATS.values():
        precisions = [name for name in PRECISIONS if name in row.precisions]
        for quantize in () if row.has_signatures else (None, *precisions):
            options = {"format": row.name, "quantize": quantize, "calibration": calibration}
            path = keras_vit.export(model, directory / f"{row.name}_{quantize}", **options)
            files[f"{row.name} {quantize or 'float32'}"] = (load_runner, path)
    return files


def measure(load, path, images, batch_sizes, seconds):
    """Return a runtime's logits, and the milliseconds of each run for each batch size."""
    run = load(path)
    logits = run(images)
    times = {size: [] for size in batch_sizes}
    for size, milliseconds in times.items():
        batch = images[:size]
        run(batch)
        while sum(milliseconds) < 1000 * seconds or len(milliseconds) < FEWEST_RUNS:
            start = time.perf_counter()
            run(batch)
            milliseconds.append(1000 * (time.perf_counter() - start))
    return logits, times


def measure_in_process(*arguments):
    """Call `measure` in its own process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(measure, *arguments).result()


def measure_in_turns(files, turns, *arguments):
    """Return the logits of each runtime, and the milliseconds of all turns."""
    logits, times = {}, {}
    for _, name in tqdm.tqdm(list(itertools.product(range(turns), files))):
        logits[name], measured = measure_in_process(*files[name], *arguments)
        for size, milliseconds in measured.items():
            times.setdefault(name, {}).setdefault(size, []).extend(milliseconds)
    return logits, times


def summary(logits, times, expected):
    """Return the results of a runtime."""
    return {
        "milliseconds": {
            size: [statistics.median(runs), min(runs), max(runs)] for size, runs in times.items()
        },
        "difference": float(np.abs(logits - expected).max()),
        "same class": float(np.mean(logits.argmax(axis=1) == expected.argmax(axis=1))),
    }


def main(
    model: str = "ViT_B16",
    image_size: int = 224,
    batch_sizes: tuple[int, ...] = (1, 8),
    turns: int = 5,
    seconds: float = 2,
    calibration_images: int = 32,
    transformers: bool = True,
    output: pathlib.Path | None = None,
):
    """Measure, print and write the results.

    Args:
        model: name of a builder.
        image_size: size of its images.
        batch_sizes: images in a batch.
        turns: number of turns of each runtime.
        seconds: duration of a turn for each batch size, which has at least two runs.
        calibration_images: number of images that int8 is calibrated on.
        transformers: whether to measure transformers too, if it has the model.
        output: JSON file to write; by default benchmarks/results/serving-MODEL.json.
    """
    shape = (max(*batch_sizes, calibration_images), image_size, image_size, 3)
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    with tempfile.TemporaryDirectory() as directory:
        files = write_files(
            model,
            image_size,
            pathlib.Path(directory),
            images[:calibration_images],
            transformers and model.startswith("ViT"),
        )
        logits, times = measure_in_turns(
            files, turns, images[: max(batch_sizes)], batch_sizes, seconds
        )
    expected = logits["model.predict"]
    runtimes = {name: summary(logits[name], times[name], expected) for name in files}
    results = {
        "versions": versions("tensorflow", "onnxruntime", "ai-edge-litert", "openvino", "nncf"),
        "turns": turns,
        "runtimes": runtimes,
    }
    report = json.dumps(results, indent=2)
    print(report)
    output = output or RESULTS / f"serving-{model}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report + "\n")


if __name__ == "__main__":
    tyro.cli(main)
