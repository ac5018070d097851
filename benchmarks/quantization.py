"""Measure the accuracy, memory and speed of models quantized by Keras.

The accuracy is that of a small ViT trained on the handwritten digits of scikit-learn. The bytes and
the images per second of `predict_on_batch` are those of a variant with random weights at 224
pixels: medians of runs in turns.

Example: python benchmarks/quantization.py --backend torch --variant ViT_B16
"""

import argparse
import math
import os
import pathlib
import statistics
import tempfile
import time

MODES = ("float32", "int8", "int4", "float8")


def quantized(model, mode):
    """Return the model quantized in a mode, or unchanged for float32."""
    import keras_vit

    return model if mode == "float32" else keras_vit.quantize(model, mode)


def trained_digits(folder):
    """Return a trained ViT with a width of 64 and four blocks, and its validation images."""
    import dataclasses

    import keras_vit

    recipe = keras_vit.training.RECIPES["digits_finetune"]
    recipe = dataclasses.replace(recipe, image_size=16, steps=600, warmup_steps=50)
    model = keras_vit.vision_transformer(4, 64, 4, 4, 128, num_classes=10, image_size=16)
    keras_vit.training.train(recipe, model, "digits", folder / "run")
    return model, keras_vit.data.load("digits", "validation", (16, 16), 64)


def num_bytes(model):
    """Return the bytes of the weights in memory."""
    import numpy as np

    return sum(math.prod(w.shape) * np.dtype(w.dtype).itemsize for w in model.weights)


def main(variant, batch_size, runs, folder):
    """Print the table."""
    import numpy as np

    import keras_vit

    small, images = trained_digits(folder)
    model = getattr(keras_vit, variant)()
    models = {mode: quantized(model, mode) for mode in MODES}
    batch = np.random.default_rng(0).uniform(-1, 1, (batch_size, 224, 224, 3)).astype("float32")
    seconds = {mode: [] for mode in MODES}
    for run in range(runs + 1):
        for mode, changed in models.items():
            start = time.perf_counter()
            changed.predict_on_batch(batch)
            # The first run is slower: it traces.
            seconds[mode] += [time.perf_counter() - start] * (run > 0)
    print(f"| {variant} | accuracy on digits | weights, MB | file, MB | images per second |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for mode, changed in models.items():
        accuracy = keras_vit.evaluation.evaluate(quantized(small, mode), images)["accuracy"]
        changed.save(folder / "model.keras")
        sizes = num_bytes(changed), (folder / "model.keras").stat().st_size
        speed = batch_size / statistics.median(seconds[mode])
        print(f"| {mode} | {accuracy:.2%} | ", end="")
        print(*(f"{size / 1e6:.1f}" for size in sizes), f"{speed:.1f} |", sep=" | ", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="tensorflow", choices=("tensorflow", "jax", "torch"))
    parser.add_argument("--variant", default="ViT_S16")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = arguments.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as scratch:
        main(arguments.variant, arguments.batch_size, arguments.runs, pathlib.Path(scratch))
