"""Whether pre-training helps, by labels and by masked patches, on the handwritten digits.

A small ViT is pre-trained on the digits 0 to 6 and fine-tuned on 7, 8 and 9, which it has not
seen; beside it the same model is trained on these from scratch, with the same budget. As in the
paper, each has the learning rate that is best on held-out images. Prints the test accuracies as a
table in Markdown.

At 32 pixels a side a patch is a pixel of the digits as they were scanned.
"""

import dataclasses
import statistics
import tempfile

import tyro

from keras_vit.cli.quickstart import (
    FINETUNING_CLASSES,
    PRETRAINING_CLASSES,
    accuracy_on_test_split,
    small_vit,
)
from keras_vit.cli.tables import markdown_table
from keras_vit.experiments.sweep import choose_learning_rate
from keras_vit.models import replace_head, resize
from keras_vit.training.fit import fit
from keras_vit.training.recipes import DIGITS_FINETUNE, DIGITS_MASKED_PATCHES, DIGITS_PRETRAIN
from keras_vit.training.training_data import load_training_data

PRETRAINING = {
    "from scratch": None,
    "labels": DIGITS_PRETRAIN,
    "masked patches": DIGITS_MASKED_PATCHES,
}

# From which the paper's protocol chooses one for each start.
LEARNING_RATES = (0.03, 0.1)


def train(recipe, model, classes):
    """Trains on the digits of those classes; returns the metrics of the epochs."""
    with tempfile.TemporaryDirectory() as workdir:
        data = load_training_data(recipe, "digits", classes)
        return fit(recipe, model, data, f"{workdir}/run")


def pretrained_model(recipe, changes):
    """A small ViT that knows the pre-training classes by a changed recipe; `None` for no recipe."""
    if recipe is None:
        return None
    recipe = dataclasses.replace(recipe, **changes)
    model = small_vit(recipe, PRETRAINING_CLASSES)
    train(recipe, model, PRETRAINING_CLASSES)
    return model


def accuracy(pretrained, recipe):
    """The test accuracy after fine-tuning with the best learning rate on the validation split."""
    models = {}

    def finetune(recipe):
        if pretrained is None:
            model = small_vit(recipe, FINETUNING_CLASSES)
        else:
            model = resize(replace_head(pretrained, len(FINETUNING_CLASSES)), recipe.image_size)
        models[recipe.learning_rate] = model
        return train(recipe, model, FINETUNING_CLASSES)

    chosen, _ = choose_learning_rate(recipe, finetune)
    return accuracy_on_test_split(models[chosen.learning_rate], recipe.image_size)


def main(seeds: int = 3, steps: tuple[int, ...] = (50, 100), image_size: int = 32):
    """Fine-tunes for so many steps from each start, with so many seeds."""
    found = {}
    for name, recipe in PRETRAINING.items():
        for seed in range(seeds):
            changes = {"seed": seed, "image_size": image_size}
            pretrained = pretrained_model(recipe, changes)
            for budget in steps:
                finetuning = dataclasses.replace(
                    DIGITS_FINETUNE, **changes, steps=budget, learning_rates=LEARNING_RATES
                )
                found.setdefault((name, budget), []).append(accuracy(pretrained, finetuning))
            print(name, seed, found, flush=True)
    columns = ("start", "steps", *(f"seed {seed}" for seed in range(seeds)), "mean")
    rows = [
        (name, str(budget), *(f"{value:.1%}" for value in [*values, statistics.mean(values)]))
        for (name, budget), values in found.items()
    ]
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    tyro.cli(main)
