"""Latency of a model's exports, and the differences of their logits from `model.predict`.

All runtimes get the same random images and weights, on the CPU. Each runs in its own process,
because idle threads of some runtimes wait busily and slow others down. Prints a table in Markdown:
for each batch size the median and 99th percentile of the time per batch, in milliseconds, and the
images per second; then the largest difference of the logits from Keras's, and the share of images
with the same top class. In few runs, the 99th percentile is the slowest run.

The int8 files are calibrated on random images too; on real images their logits differ less.
"""

import concurrent.futures
import multiprocessing
import pathlib
import tempfile
import time

import numpy as np
import tqdm
import tyro

from keras_vit.cli.tables import markdown_table
from keras_vit.serving.formats import FORMATS, WRITERS
from keras_vit.serving.runners import load_runner

# Even if a batch takes long.
FEWEST_RUNS = 5


def load_keras(path):
    """Load the model itself."""
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
    """Load the same weights in transformers, on torch."""
    import torch
    import transformers

    module = transformers.ViTForImageClassification.from_pretrained(path).eval()

    def run(images):
        with torch.inference_mode():
            return module(torch.from_numpy(images.transpose(0, 3, 1, 2))).logits.numpy()

    return run


def write_files(name, image_size, directory, calibration, with_transformers):
    """Write a model for every runtime.

    Returns:
        A dictionary from the rows of the table to `(function that loads it, path)`.
    """
    import keras

    import keras_vit

    model = getattr(keras_vit, name)(image_size=image_size)
    # Heads are initialized with zeros, and all logits would be equal.
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
    for format_name, write in WRITERS.items():
        for quantize in (None, *({"int8"} & FORMATS[format_name].precisions.keys())):
            folder = directory / f"{format_name}_{quantize}"
            folder.mkdir()
            path = write(model, folder, quantize, calibration)
            files[f"{format_name} {quantize or 'float32'}"] = (load_runner, path)
    return files


def measure(load, path, images, batch_sizes, seconds):
    """Return a runtime's logits, and the milliseconds of each run for each batch size."""
    run = load(path)
    logits = run(images)
    times = {}
    for size in batch_sizes:
        batch = images[:size]
        run(batch)
        times[size] = []
        while sum(times[size]) < 1000 * seconds or len(times[size]) < FEWEST_RUNS:
            start = time.perf_counter()
            run(batch)
            times[size].append(1000 * (time.perf_counter() - start))
    return logits, times


def measure_in_process(*arguments):
    """Call `measure` in its own process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(measure, *arguments).result()


def table_row(name, logits, times, expected):
    """Return the cells of a runtime."""
    cells = [name]
    for size, milliseconds in times.items():
        middle, slow = np.percentile(milliseconds, [50, 99])
        cells += [f"{middle:.0f}", f"{slow:.0f}", f"{1000 * size / middle:.1f}"]
    same = np.mean(logits.argmax(axis=1) == expected.argmax(axis=1))
    return [*cells, f"{np.abs(logits - expected).max():.1e}", f"{same:.0%}"]


def main(
    model: str = "ViT_B16",
    image_size: int = 224,
    batch_sizes: tuple[int, ...] = (1, 8, 32),
    seconds: float = 20,
    calibration_images: int = 32,
    transformers: bool = True,
):
    """Print the table.

    Args:
        model: name of a builder.
        image_size: size of its images.
        batch_sizes: images in a batch.
        seconds: time to measure each runtime with each batch size.
        calibration_images: number of images that int8 is calibrated on.
        transformers: whether transformers is measured too; it has only the ViTs.
    """
    shape = (max(*batch_sizes, calibration_images), image_size, image_size, 3)
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    with tempfile.TemporaryDirectory() as directory:
        files = write_files(
            model, image_size, pathlib.Path(directory), images[:calibration_images], transformers
        )
        images = images[: max(batch_sizes)]
        measured = {
            name: measure_in_process(*file, images, batch_sizes, seconds)
            for name, file in tqdm.tqdm(files.items())
        }
    expected, _ = measured["model.predict"]
    columns = [f"{what} at {size}" for size in batch_sizes for what in ("p50", "p99", "images/s")]
    rows = [table_row(name, *results, expected) for name, results in measured.items()]
    print(markdown_table(["", *columns, "difference", "same class"], rows))


if __name__ == "__main__":
    tyro.cli(main)
