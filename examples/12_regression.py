"""Predict a number for each image: the mean brightness of photographs.

    python examples/12_regression.py

The photographs are crops of the two of scikit-learn, some darker and some brighter.
"""

import csv
import dataclasses
import pathlib
import tempfile

import keras
import numpy as np
from sklearn.datasets import load_sample_images

import keras_vit
from keras_vit.training import RECIPES, train


def write_crops(folder, count=400, size=64):
    """Write crops of the photographs, and `values.csv` with their mean brightness."""
    rng, rows = np.random.default_rng(0), [("image", "brightness")]
    for index in range(count):
        photo = load_sample_images().images[index % 2]
        row, column = (rng.integers(length - size) for length in photo.shape[:2])
        crop = photo[row : row + size, column : column + size] * rng.uniform(0.2, 1.5)
        crop = np.clip(crop, 0, 255).astype("uint8")
        keras.utils.save_img(folder / f"{index}.png", crop, scale=False)
        rows.append((f"{index}.png", crop.mean()))
    with (folder / "values.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return f"csv:{folder / 'values.csv'}"


with tempfile.TemporaryDirectory() as folder:
    data = write_crops(pathlib.Path(folder))
    recipe = dataclasses.replace(
        RECIPES["finetune"],
        loss="regression",
        image_size=32,
        batch_size=32,
        steps=200,
        warmup_steps=20,
        optimizer="adamw",
        learning_rate=1e-3,
        min_crop_area=None,
    )
    model = "ViT_Ti16(patch_size=8, depth=4)"
    run = train(recipe, model, data, pathlib.Path(folder) / "run")
    metrics = keras_vit.evaluation.evaluate(run.model, keras_vit.data.load(data, "test", 32, 32))
    print(f"R2 {metrics['r2']:.3f}, mean error {metrics['mean_absolute_error']:.1f} of 255")
    assert metrics["r2"] > 0.95
