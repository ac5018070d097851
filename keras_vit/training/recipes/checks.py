"""Checks of the settings of a recipe."""

import dataclasses
import itertools
import math
import typing

from keras_vit.core.arguments import check_choice, is_integer

# Optimizers that compute as optax does.
PAPER_OPTIMIZERS = ("adamw", "sgd")
WHOLE = (
    *("image_size", "batch_size", "warmup_steps", "epochs", "steps", "frozen_blocks"),
    *("accumulation_steps", "random_crop_from", "seed", "patience", "unfreeze_steps"),
    "lora_rank",
)
POSITIVE = (
    *("image_size", "batch_size", "learning_rate", "epochs", "steps", "layer_decay"),
    *("accumulation_steps", "clip_norm", "patience", "lora_rank", "lora_alpha", "temperature"),
)
NOT_NEGATIVE = ("warmup_steps", "weight_decay", "frozen_blocks", "seed", "unfreeze_steps")
SHARES = ("dropout", "label_smoothing", "ema_momentum", "label_weight")


def check_recipe(recipe):
    """Check that each setting is in range, and that they go together."""
    _check_ranges(recipe)
    _check_choices(recipe)
    _check_length(recipe)
    _check_crop(recipe)
    if recipe.label_smoothing and recipe.loss != "softmax":
        raise ValueError(
            "`label_smoothing` is for the softmax. "
            f"Received: label_smoothing={recipe.label_smoothing}, loss={recipe.loss!r}"
        )
    if recipe.head_bias and not recipe.is_of_classes:
        raise ValueError(
            "`head_bias` is for classes, not for masked patches. "
            f"Received: head_bias={recipe.head_bias}, loss={recipe.loss!r}"
        )
    _check_training(recipe)
    if recipe.distillation == "hard" and recipe.temperature != 1:
        raise ValueError(
            "`temperature` is for soft distillation. "
            f"Received: temperature={recipe.temperature}, distillation='hard'"
        )
    if recipe.freeze if recipe.lora_rank else recipe.lora_alpha:
        raise ValueError(
            "`lora_alpha` needs a `lora_rank`, which is not for a frozen backbone. Received: "
            f"lora_alpha={recipe.lora_alpha}, lora_rank={recipe.lora_rank}, freeze={recipe.freeze}"
        )
    if recipe.batch_size % recipe.accumulation_steps:
        raise ValueError(
            "`accumulation_steps` must divide `batch_size`. Received: "
            f"accumulation_steps={recipe.accumulation_steps}, batch_size={recipe.batch_size}"
        )


def _check_ranges(recipe):
    rules = [
        (WHOLE, "be a whole number", is_integer),
        (("boundaries",), "be whole numbers", lambda values: all(map(is_integer, values))),
        (POSITIVE, "be positive", lambda value: 0 < value < math.inf),
        (NOT_NEGATIVE, "not be negative", lambda value: 0 <= value < math.inf),
        (SHARES, "be at least 0 and less than 1", lambda value: 0 <= value < 1),
        (("min_crop_area",), "be greater than 0 and at most 1", lambda value: 0 < value <= 1),
        (("seed",), "be less than 2**32", lambda value: value < 2**32),
        (("head_bias",), "be finite", math.isfinite),
        (("learning_rates",), "be positive", lambda rates: all(0 < r < math.inf for r in rates)),
    ]
    for fields, rule, is_right in rules:
        for field in fields:
            value = getattr(recipe, field)
            if value is not None and not is_right(value):
                raise ValueError(f"`{field}` must {rule}. Received: {field}={value}")


def _check_choices(recipe):
    for field in dataclasses.fields(recipe):
        if typing.get_origin(field.type) is typing.Literal:
            check_choice(field.name, getattr(recipe, field.name), typing.get_args(field.type))


def _check_length(recipe):
    if (recipe.epochs is None) == (recipe.steps is None):
        raise ValueError(
            "Exactly one of `epochs` and `steps` must be given, the other must be None. "
            f"Received: epochs={recipe.epochs}, steps={recipe.steps}"
        )
    if (recipe.decay == "staircase") != bool(recipe.boundaries):
        raise ValueError(
            "`boundaries` must be given for a staircase, and only for a staircase. "
            f"Received: boundaries={recipe.boundaries}, decay={recipe.decay!r}"
        )
    ends = (recipe.warmup_steps, *recipe.boundaries)
    if any(end <= start for start, end in itertools.pairwise(ends)):
        raise ValueError(
            "`boundaries` must rise, from more than `warmup_steps`. "
            f"Received: boundaries={recipe.boundaries}, warmup_steps={recipe.warmup_steps}"
        )


def _check_crop(recipe):
    if recipe.min_crop_area is not None and recipe.random_crop_from is not None:
        raise ValueError(
            "Only one of `min_crop_area` and `random_crop_from` can be given. "
            f"Received: {recipe.min_crop_area} and {recipe.random_crop_from}"
        )
    if recipe.random_crop_from is not None and recipe.random_crop_from < recipe.image_size:
        raise ValueError(
            f"`random_crop_from` must be at least the `image_size`, {recipe.image_size}. "
            f"Received: random_crop_from={recipe.random_crop_from}"
        )


def _check_training(recipe):
    """Check what is trained, and on which examples."""
    if recipe.optimizer not in PAPER_OPTIMIZERS and recipe.accumulation_steps > 1:
        raise ValueError(
            "`accumulation_steps` needs the optimizer `adamw` or `sgd`. Received: "
            f"accumulation_steps={recipe.accumulation_steps}, optimizer={recipe.optimizer!r}"
        )
    for name in ("class_balance", "freeze"):
        if getattr(recipe, name) not in ("none", False) and not recipe.is_of_classes:
            raise ValueError(
                f"`{name}` is for classes, not for masked patches. "
                f"Received: {name}={getattr(recipe, name)!r}, loss={recipe.loss!r}"
            )
    if recipe.freeze and recipe.augmentation != "none":
        raise ValueError(
            "`freeze` computes the features of each image once, without augmentation. "
            f"Received: freeze=True, augmentation={recipe.augmentation!r}"
        )
    frozen = [name for name in ("frozen_blocks", "unfreeze_steps") if getattr(recipe, name)]
    if len(frozen) + recipe.freeze > 1:
        raise ValueError(
            "Only one of `freeze`, `frozen_blocks` and `unfreeze_steps` can be given. Received: "
            f"freeze={recipe.freeze}, frozen_blocks={recipe.frozen_blocks}, "
            f"unfreeze_steps={recipe.unfreeze_steps}"
        )
