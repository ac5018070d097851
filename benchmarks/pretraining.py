"""Whether pre-training helps, by labels and by masked patches, on the handwritten digits.

A small ViT is pre-trained on the digits 0 to 6 and fine-tuned on 7, 8 and 9, which it has not
seen; beside it the same model is trained on these from scratch, with the same budget. Prints the
test accuracies as a table in Markdown.
"""

import dataclasses
import pathlib
import statistics
import tempfile

import keras
import tyro

from keras_vit.cli.quickstart import (
    FINETUNING_CLASSES,
    PRETRAINING_CLASSES,
    accuracy_on_test_split,
    small_vit,
)
from keras_vit.cli.tables import markdown_table
from keras_vit.models import replace_head, resize
from keras_vit.training.fit import fit
from keras_vit.training.recipes import DIGITS_FINETUNE, DIGITS_MASKED_PATCHES, DIGITS_PRETRAIN
from keras_vit.training.training_data import load_training_data

PRETRAINING = {
    "from scratch": None,
    "labels": DIGITS_PRETRAIN,
    "masked patches": DIGITS_MASKED_PATCHES,
}


def train(recipe, model, classes, workdir):
    """Trains on the digits of those classes."""
    keras.utils.set_random_seed(recipe.seed)
    fit(recipe, model, load_training_data(recipe, "digits", classes), workdir)


def accuracy(recipe, seed, steps, workdir):
    """The test accuracy after fine-tuning, from a model pre-trained by a recipe or from none."""
    finetuning = dataclasses.replace(DIGITS_FINETUNE, seed=seed, steps=steps)
    if recipe is None:
        model = small_vit(finetuning, FINETUNING_CLASSES)
    else:
        recipe = dataclasses.replace(recipe, seed=seed)
        pretrained = small_vit(recipe, PRETRAINING_CLASSES)
        train(recipe, pretrained, PRETRAINING_CLASSES, workdir / "pretrained")
        model = resize(replace_head(pretrained, len(FINETUNING_CLASSES)), finetuning.image_size)
    train(finetuning, model, FINETUNING_CLASSES, workdir / "finetuned")
    return accuracy_on_test_split(model, finetuning.image_size)


def main(seeds: int = 3, steps: int = DIGITS_FINETUNE.steps):
    """Runs each of the pre-trainings with each of the seeds."""
    rows = []
    for name, recipe in PRETRAINING.items():
        found = []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as workdir:
                found.append(accuracy(recipe, seed, steps, pathlib.Path(workdir)))
        print(name, found, flush=True)
        rows.append((name, *(f"{value:.1%}" for value in [*found, statistics.mean(found)])))
    columns = ("pre-training", *(f"seed {seed}" for seed in range(seeds)), "mean")
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    tyro.cli(main)
