"""Measure whether pre-training helps on handwritten digits: with labels and with masked patches.

A small ViT is pre-trained on the digits 0 to 6 and fine-tuned on 7, 8 and 9. For comparison, the
same model is trained from scratch on 7, 8 and 9, with the same budget. As in the paper, each start
has the learning rate that is best on held-out images. The script prints the test accuracies as a
Markdown table.

At 32 pixels a side, a patch is one pixel of the original digits.
"""

import dataclasses
import statistics
import tempfile

import keras
import tyro

from keras_vit.cli.command import markdown_table
from keras_vit.cli.quickstart import FINETUNING_CLASSES, PRETRAINING_CLASSES
from keras_vit.data import load
from keras_vit.evaluation import evaluate
from keras_vit.experiments.sweep import choose_learning_rate
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES

PRETRAINING = {
    "from scratch": None,
    "labels": RECIPES["digits_pretrain"],
    "masked patches": RECIPES["digits_masked_patches"],
}

# Learning rates to choose from for each start, as in the paper.
LEARNING_RATES = (0.03, 0.1)


def small_vit(recipe, classes):
    """Build a ViT for small images."""
    keras.utils.set_random_seed(recipe.seed)
    return vision_transformer(
        patch_size=4,
        embedding_dim=64,
        depth=3,
        num_heads=4,
        mlp_dim=128,
        num_classes=len(classes),
        image_size=recipe.image_size,
        representation_size=64 if recipe.pre_logits else None,
        dropout=recipe.dropout,
        name="small_vit",
    )


def accuracy_on_test_split(model, image_size):
    """Return the accuracy on the test split of the fine-tuning classes."""
    test = load("digits", "test", image_size, 64, classes=FINETUNING_CLASSES)
    return evaluate(model, test)["accuracy"]


def train(recipe, model, classes):
    """Train on the digits of some classes, and return the metrics of the epochs."""
    with tempfile.TemporaryDirectory() as workdir:
        return trainer.train(recipe, model, "digits", f"{workdir}/run", classes=classes).history


def pretrained_model(recipe, changes):
    """Return a small ViT, pre-trained by a changed recipe; `None` if there is no recipe."""
    if recipe is None:
        return None
    recipe = dataclasses.replace(recipe, **changes)
    model = small_vit(recipe, PRETRAINING_CLASSES)
    train(recipe, model, PRETRAINING_CLASSES)
    return model


def accuracy(pretrained, recipe):
    """Return the test accuracy after fine-tuning with the best validated learning rate."""
    models = {}

    def finetune(recipe, workdir):
        if pretrained is None:
            model = small_vit(recipe, FINETUNING_CLASSES)
        else:
            model = resize(replace_head(pretrained, len(FINETUNING_CLASSES)), recipe.image_size)
        models[recipe.learning_rate] = model
        return train(recipe, model, FINETUNING_CLASSES)

    with tempfile.TemporaryDirectory() as workdir:
        chosen, _ = choose_learning_rate(recipe, finetune, workdir)
    return accuracy_on_test_split(models[chosen.learning_rate], recipe.image_size)


def main(seeds: int = 3, steps: tuple[int, ...] = (50, 100), image_size: int = 32):
    """Fine-tune from each start, with several seeds and numbers of steps."""
    found = {}
    for name, recipe in PRETRAINING.items():
        for seed in range(seeds):
            changes = {"seed": seed, "image_size": image_size}
            pretrained = pretrained_model(recipe, changes)
            for budget in steps:
                finetuning = dataclasses.replace(
                    RECIPES["digits_finetune"],
                    **changes,
                    steps=budget,
                    learning_rates=LEARNING_RATES,
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
