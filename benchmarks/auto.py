"""Measure `keras-vit train auto` on a few hundred uneven images, next to simpler methods.

    python benchmarks/auto.py CIFAR10 WORKDIR [--epochs 24] [--seeds 3]

CIFAR10 is a folder with `train/CLASS/*.jpg` and `test/CLASS/*.jpg`. A small ViT with patches of 4
pixels is pre-trained on five of the classes. The user's folder has 300 images of the other five
classes (150, 75, 40, 25 and 10). The measure is the balanced accuracy on the test images of these
classes. The same command resumes after a stop.
"""

import argparse
import dataclasses
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

import keras
import numpy as np

import keras_vit
from keras_vit.evaluation.classification import predictions
from keras_vit.training import RECIPES, train
from keras_vit.training.recipe import find_recipe

PRETRAINED = ("airplane", "bird", "deer", "frog", "ship")
OTHERS = ("automobile", "cat", "dog", "horse", "truck")
COUNTS = (150, 75, 40, 25, 10)
MODEL = {"patch_size": 4, "embedding_dim": 96, "depth": 6, "num_heads": 3, "mlp_dim": 192}


def main():
    """Print the balanced accuracies of all seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cifar10", type=pathlib.Path)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    pretrained = pretrain(options.cifar10, options.workdir, options.epochs)
    rows = [one_seed(options.cifar10, options.workdir, pretrained, s) for s in range(options.seeds)]
    print(f"\n{'':24}{'mean':>8}  seeds")
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"{name:24}{np.mean(values):8.3f}  {', '.join(f'{value:.3f}' for value in values)}")


def pretrain(cifar10, workdir, epochs):
    """Pre-train the small ViT, and return the directory of the run."""
    run = workdir / "pretrained"
    if not (run / "done").exists():
        five = workdir / "five"
        for split in ("train", "test"):
            for name in PRETRAINED:
                shutil.copytree(cifar10 / split / name, five / split / name, dirs_exist_ok=True)
        keras.utils.set_random_seed(0)
        model = keras_vit.vision_transformer(**MODEL, num_classes=5, image_size=32)
        recipe = dataclasses.replace(
            RECIPES["pretrain"],
            **{"image_size": 32, "batch_size": 128, "epochs": epochs, "warmup_steps": 300},
            **{"dropout": 0.0, "pre_logits": False, "min_crop_area": 0.4, "clip_norm": 1.0},
        )
        train(recipe, model, f"folder:{five}", run, resume=True)
        (run / "done").touch()
    return run


def one_seed(cifar10, workdir, pretrained, seed):
    """Return the balanced accuracies for one choice of the 300 images."""
    results = workdir / f"{seed}.json"
    if results.exists():
        return json.loads(results.read_text())
    photos, test = choose_images(cifar10, workdir / f"seed{seed}", seed)
    run = workdir / f"auto{seed}"
    shutil.rmtree(run, ignore_errors=True)
    start = time.perf_counter()
    command = ["train", "auto", "--model", pretrained, "--data", f"folder:{photos}"]
    command += ["--workdir", run, "--seed", seed]
    subprocess.run([sys.executable, "-m", "keras_vit", *map(str, command)], check=True)
    minutes = (time.perf_counter() - start) / 60
    # The same recipe from random weights, with their learning rate.
    recipe = find_recipe(json.loads((run / "run.json").read_text())["recipe"])
    scratch = {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.03}
    keras.utils.set_random_seed(seed)
    model = keras_vit.vision_transformer(**MODEL, num_classes=5, image_size=32)
    directory = workdir / f"scratch{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    train(dataclasses.replace(recipe, **scratch), model, f"folder:{photos}", directory)
    row = {
        "auto": balanced_accuracy(run, test),
        "from scratch": balanced_accuracy(directory, test),
        **logistic_regressions(photos, test),
        "minutes of auto": minutes,
    }
    results.write_text(json.dumps(row))
    return row


def choose_images(cifar10, root, seed):
    """Copy 300 images to the user's folder; return it and the folder of test images."""
    rng = random.Random(seed)
    shutil.rmtree(root, ignore_errors=True)
    for name, count in zip(rng.sample(OTHERS, len(OTHERS)), COUNTS, strict=True):
        (root / "photos" / name).mkdir(parents=True)
        for path in rng.sample(sorted((cifar10 / "train" / name).iterdir()), count):
            shutil.copy(path, root / "photos" / name)
        shutil.copytree(cifar10 / "test" / name, root / "test/test" / name)
        # A dataset needs a training folder; its image is not used.
        (root / "test/train" / name).mkdir(parents=True)
        shutil.copy(path, root / "test/train" / name)
    return root / "photos", root / "test"


def balanced_accuracy(run, test):
    """Return the balanced accuracy of the best model of a run."""
    import sklearn.metrics

    model = keras.models.load_model(run / "best.keras")
    found = predictions(model, keras_vit.data.load(f"folder:{test}", "test", 32, 100))
    return sklearn.metrics.balanced_accuracy_score(found.labels, found.predicted)


def logistic_regressions(photos, test):
    """Return the balanced accuracies of logistic regressions on the pixels of all 300 images."""
    import sklearn.linear_model
    import sklearn.metrics

    options = {"image_size": 32, "batch_size": 100}
    parts = [
        keras_vit.data.load(f"folder:{photos}", "train+validation+test", **options),
        keras_vit.data.load(f"folder:{test}", "test", **options),
    ]
    arrays = []
    for part in parts:
        images, labels = zip(*part.as_numpy_iterator(), strict=True)
        arrays.append((np.concatenate(images).reshape(-1, 32 * 32 * 3), np.concatenate(labels)))
    found = {}
    for name, weights in (("logistic regression", None), ("..., classes weighted", "balanced")):
        model = sklearn.linear_model.LogisticRegression(class_weight=weights, max_iter=2000)
        predicted = model.fit(*arrays[0]).predict(arrays[1][0])
        found[name] = sklearn.metrics.balanced_accuracy_score(arrays[1][1], predicted)
    return found


if __name__ == "__main__":
    main()
