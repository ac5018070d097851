"""Models and recipes of runs that take seconds, on the digits 7, 8 and 9."""

import dataclasses

from keras_vit.models import vision_transformer
from keras_vit.training.recipes import DIGITS_FINETUNE
from tests.models.test_vit import TINY

CLASSES = ("7", "8", "9")


def small_recipe(**changes):
    """A few steps of fine-tuning at the digits' own resolution."""
    settings = {"image_size": 8, "batch_size": 64, "steps": 12, "warmup_steps": 3, **changes}
    return dataclasses.replace(DIGITS_FINETUNE, **settings)


def small_model(recipe, num_classes=3, **options):
    """One block, of the recipe's image size."""
    settings = {"image_size": recipe.image_size, "num_classes": num_classes, **options}
    return vision_transformer(**{**TINY, "depth": 1, **settings})
