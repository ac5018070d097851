"""Measure the time to the first prediction: import, model with weights, first image.

    python benchmarks/start_up.py
    python benchmarks/start_up.py --model ViT_L16

Each run is a new process, and the packages take turns: keras_vit and keras-hub on TensorFlow, timm
on torch. The weights are random, and each package reads a file in its own format. Then commands of
keras_vit are measured from start to end, on the same weights. A program of five lines, which reads
the model and predicts one image, shows what TensorFlow and Keras take of this time.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Literal

import tyro
from throughput import RESULTS, versions

STEPS = ("import", "model", "first image")
TIMM = {"ViT_B16": "vit_base_patch16_224", "ViT_L16": "vit_large_patch16_224"}

SHORTEST_PROGRAM = """
import sys, keras, keras_vit.models, tensorflow as tf
model = keras.models.load_model(sys.argv[1])
image = tf.io.decode_png(tf.io.read_file(sys.argv[2]), channels=3)
print(model.predict_on_batch(keras_vit.preprocess(image)[None]).argmax())
"""


@dataclasses.dataclass
class Benchmark:
    """Compare the packages, and time the commands."""

    model: Literal["ViT_B16", "ViT_L16"] = "ViT_B16"
    """Our builder."""
    runs: int = 10
    """Number of runs of each package."""
    output: pathlib.Path | None = None
    """JSON file to write; results/start_up-MODEL.json if it is not given."""


def keras_vit_start(name, directory, is_written):
    """Write a model, or read one and return the seconds of the steps."""
    start = time.perf_counter()
    import keras

    import keras_vit

    imported = time.perf_counter()
    path = directory / "google.npz"
    if not is_written:
        model = getattr(keras_vit, name)()
        randomize_head(keras, model.get_layer("head"))
        keras_vit.save_checkpoint(model, path, "google")
        model.save(directory / "model.keras")
        return None
    model = keras_vit.from_checkpoint(path)
    return first_image(model.predict, (start, imported))


def keras_hub_start(name, directory, is_written):
    """Do the same with keras-hub, with a preset."""
    start = time.perf_counter()
    import keras_hub

    imported = time.perf_counter()
    if not is_written:
        width, depth, heads = {"ViT_B16": (768, 12, 12), "ViT_L16": (1024, 24, 16)}[name]
        backbone = keras_hub.models.ViTBackbone(
            image_shape=(224, 224, 3),
            patch_size=16,
            num_layers=depth,
            num_heads=heads,
            hidden_dim=width,
            mlp_dim=4 * width,
        )
        keras_hub.models.ViTImageClassifier(
            backbone=backbone, num_classes=1000, pooling="token"
        ).save_to_preset(directory / "preset")
        return None
    model = keras_hub.models.ViTImageClassifier.from_preset(str(directory / "preset"))
    return first_image(model.predict, (start, imported))


def timm_start(name, directory, is_written):
    """Do the same with timm, on torch."""
    start = time.perf_counter()
    from peers import timm_module

    path = str(directory / "timm.safetensors")
    if not is_written:
        from safetensors.torch import save_file

        save_file(timm_module(TIMM[name]).state_dict(), path)
        return None
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
    from tests.fixtures.peers.timm_alone import import_timm

    timm = import_timm()
    imported = time.perf_counter()
    module = timm.create_model(TIMM[name], num_classes=1000, checkpoint_path=path).eval()

    def predict(images, verbose):
        with torch.inference_mode():
            return module(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()

    return first_image(predict, (start, imported))


def randomize_head(keras, head):
    """Give the head random weights, because it starts with zeros."""
    head.kernel.assign(keras.random.normal(head.kernel.shape, stddev=0.02, seed=0))


def first_image(predict, times):
    """Predict one image; return the seconds of all steps."""
    import numpy as np

    built = time.perf_counter()
    predict(np.zeros((1, 224, 224, 3), "float32"), verbose=0)
    times = [*times, built, time.perf_counter()]
    return [after - before for before, after in itertools.pairwise(times)]


PACKAGES = {"keras_vit": keras_vit_start, "keras-hub": keras_hub_start, "timm": timm_start}


def in_process(function, *arguments):
    """Call a function in a new process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as executor:
        return executor.submit(function, *arguments).result()


def compare(options, directory):
    """Return the medians of the seconds of each step, and of the ratios of the totals to ours."""
    for start in PACKAGES.values():
        in_process(start, options.model, directory, False)
    seconds = {package: [] for package in PACKAGES}
    for _ in range(options.runs):
        for package, start in PACKAGES.items():
            seconds[package].append(in_process(start, options.model, directory, True))
    results = {}
    for package, runs in seconds.items():
        medians = map(statistics.median, zip(*runs, strict=True))
        pairs = zip(runs, seconds["keras_vit"], strict=True)
        ratios = [sum(run) / sum(ours) for run, ours in pairs]
        ratio = [statistics.median(ratios), min(ratios), max(ratios)]
        results[package] = {**dict(zip(STEPS, medians, strict=True)), "ratio": ratio}
        times = ", ".join(f"{step} {results[package][step]:.2f} s" for step in STEPS)
        print(f"{package:10} {times}; total {ratio[0]:.2f} of keras_vit's")
    return results


def time_commands(directory, runs):
    """Return the median seconds of commands, in turns, and of the shortest program."""
    import numpy as np
    from PIL import Image

    Image.fromarray(np.zeros((224, 224, 3), "uint8")).save(directory / "image.png")
    model = directory / "model.keras"
    ours = pathlib.Path(sys.executable).parent / "keras-vit"
    converted = directory / "timm_of_ours.safetensors"
    commands = {
        "import tensorflow": [sys.executable, "-c", "import tensorflow"],
        "import keras_vit": [sys.executable, "-c", "import keras_vit; keras_vit.ViT_B16"],
        "shortest program": [
            sys.executable,
            "-c",
            SHORTEST_PROGRAM,
            model,
            directory / "image.png",
        ],
        "models": [ours, "models"],
        "predict": [ours, "predict", model, directory / "image.png"],
        "convert": [ours, "convert", directory / "google.npz", converted, "--overwrite"],
        "export": [ours, "export", model, directory / "exported"],
    }
    seconds = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:20} {median:.2f} s")
    return medians


def main():
    """Measure and report."""
    options = tyro.cli(Benchmark)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        results = {"versions": versions("tensorflow", "torch"), "runs": options.runs}
        results["packages"] = compare(options, directory)
        results["commands"] = time_commands(directory, options.runs)
    output = options.output or RESULTS / f"start_up-{options.model}.json"
    output.write_text(json.dumps(results, indent=2) + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
