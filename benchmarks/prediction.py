"""Measure the prediction of image files: with `Predictor`, one by one, and by `model.predict`.

The files are JPEGs in a folder, such as photographs. `model.predict` gets decoded images, so its
lead over `Predictor` is the cost of decoding. The last line extrapolates from one core to a million
images.
"""

import pathlib
import statistics
import tempfile
import time

import keras
import numpy as np
import tyro

import keras_vit
from keras_vit.data.sources.folder import list_images
from keras_vit.serving import Predictor
from keras_vit.serving.image_files import preprocess_files


def seconds_of(function):
    """Return the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def one_by_one(model, files):
    """Decode, preprocess and predict one file at a time."""
    size = model.input_shape[1:3]
    for file in files:
        image = preprocess_files([file], size)
        keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(image), training=False))


def main(
    folder: pathlib.Path,
    model: str = "ViT_B16",
    image_size: int = 224,
    count: int = 128,
    batch_size: int = 32,
    runs: int = 5,
    loop: int = 32,
):
    """Print images per second, and their ratios within the turns.

    Args:
        folder: folder of image files.
        model: name of a builder.
        image_size: side of the images, in pixels.
        count: number of files; they are repeated if there are fewer.
        batch_size: images in one step.
        runs: number of turns.
        loop: number of files that are predicted one by one.
    """
    keras.utils.set_random_seed(0)
    network = getattr(keras_vit, model)(num_classes=1000, image_size=image_size)
    # A head of zeros would cause a warning.
    network.get_layer("head").kernel.assign(
        np.random.normal(size=(network.layers[-2].output.shape[-1], 1000))
    )
    paths, _ = list_images(folder)
    files = [pathlib.Path(path).read_bytes() for path in paths]
    files = (files * (count // len(files) + 1))[:count]
    images = preprocess_files(files, (image_size, image_size))
    with tempfile.TemporaryDirectory() as scratch:
        network.save(pathlib.Path(scratch, "model.keras"))
        predictor = Predictor(pathlib.Path(scratch, "model.keras"), batch_size=batch_size)
        batch = {"bytes": np.array(files, object)}
        works = {
            "predict": lambda: network.predict(images, batch_size=batch_size, verbose=0),
            "Predictor": lambda: predictor(batch),
        }
        for work in works.values():
            work()
        turns = [
            {name: count / seconds_of(work) for name, work in works.items()} for _ in range(runs)
        ]
        one_by_one(network, files[:2])
        slow = loop / seconds_of(lambda: one_by_one(network, files[:loop]))
    for name in works:
        print(f"{name}: {statistics.median(turn[name] for turn in turns):.1f} images/s")
    ratios = [turn["Predictor"] / turn["predict"] for turn in turns]
    print(f"Predictor / predict: {statistics.median(ratios):.3f}", end=" ")
    print(f"({min(ratios):.3f} to {max(ratios):.3f})")
    fast = statistics.median(turn["Predictor"] for turn in turns)
    print(f"one by one: {slow:.1f} images/s, Predictor / one by one: {fast / slow:.1f}")
    print(f"a million images on this machine: {1e6 / fast / 3600:.1f} hours")


if __name__ == "__main__":
    tyro.cli(main)
