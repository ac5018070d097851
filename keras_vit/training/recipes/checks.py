"""Checks of the settings of a recipe."""

import dataclasses
import itertools
import math
import typing

from keras_vit.core.arguments import check_choice, is_integer, is_number
from keras_vit.core.choices import SEGMENTATION, TARGETS
from keras_vit.models.options import VitOptions

# Optimizers that compute as optax does.
PAPER_OPTIMIZERS = ("adamw", "sgd")
# Types in which they may store the momentum.
MOMENTUM_DTYPES = ("float32", "bfloat16")
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
OTHER_NUMBERS = ("min_crop_area", "head_bias")


# Settings that do not go together: a test of a recipe, the rule it breaks, and the fields to show.
COMBINATIONS = (
    (
        lambda r: (r.epochs is None) == (r.steps is None),
        "Exactly one of `epochs` and `steps` must be given (`--epochs`, `--steps`; None in Python)",
        ("epochs", "steps"),
    ),
    (
        lambda r: (r.decay == "staircase") != bool(r.boundaries),
        "`boundaries` must be given for a staircase, and only for a staircase",
        ("boundaries", "decay"),
    ),
    (
        lambda r: not _is_rising((r.warmup_steps, *r.boundaries)),
        "`boundaries` must rise, from more than `warmup_steps`",
        ("boundaries", "warmup_steps"),
    ),
    (
        lambda r: r.min_crop_area is not None and r.random_crop_from is not None,
        "Only one of `min_crop_area` and `random_crop_from` can be given",
        ("min_crop_area", "random_crop_from"),
    ),
    (
        lambda r: r.random_crop_from is not None and r.random_crop_from < r.image_size,
        "`random_crop_from` must be at least the `image_size`",
        ("random_crop_from", "image_size"),
    ),
    (
        lambda r: r.label_smoothing and r.loss != "softmax",
        "`label_smoothing` is for the softmax",
        ("label_smoothing", "loss"),
    ),
    (
        lambda r: (
            not r.is_of_classes and (r.head_bias or r.freeze or r.class_balance == "sampling")
        ),
        '`head_bias`, `freeze` and `class_balance="sampling"` are for classes of images',
        ("head_bias", "freeze", "class_balance", "loss"),
    ),
    (
        lambda r: r.loss in TARGETS and r.class_balance != "none",
        "`class_balance` is for classes, not for masked patches",
        ("class_balance", "loss"),
    ),
    (
        lambda r: r.optimizer not in PAPER_OPTIMIZERS and r.accumulation_steps > 1,
        "`accumulation_steps` needs the optimizer `adamw` or `sgd`",
        ("accumulation_steps", "optimizer"),
    ),
    (
        lambda r: r.optimizer not in PAPER_OPTIMIZERS and r.momentum_dtype,
        "`momentum_dtype` needs the optimizer `adamw` or `sgd`",
        ("momentum_dtype", "optimizer"),
    ),
    (
        lambda r: r.optimizer == "ftrl" and r.warmup_steps,
        "`ftrl` divides by the learning rate, so that `warmup_steps` must be 0",
        ("optimizer", "warmup_steps"),
    ),
    (
        lambda r: r.batch_size % r.accumulation_steps,
        "`accumulation_steps` must divide `batch_size`",
        ("accumulation_steps", "batch_size"),
    ),
    (
        lambda r: r.freeze and r.augmentation != "none",
        "`freeze` computes the features of each image once, without augmentation",
        ("freeze", "augmentation"),
    ),
    (
        lambda r: r.freeze + bool(r.frozen_blocks) + bool(r.unfreeze_steps) > 1,
        "Only one of `freeze`, `frozen_blocks` and `unfreeze_steps` can be given",
        ("freeze", "frozen_blocks", "unfreeze_steps"),
    ),
    (
        lambda r: r.distillation == "hard" and r.temperature != 1,
        "`temperature` is for soft distillation",
        ("temperature", "distillation"),
    ),
    (
        lambda r: r.lora_alpha and not r.lora_rank,
        "`lora_alpha` needs a `lora_rank`",
        ("lora_alpha", "lora_rank"),
    ),
    (
        lambda r: r.lora_rank and r.segment_head == "mask",
        '`lora_rank` would freeze the new decoder of `segment_head="mask"`',
        ("lora_rank", "segment_head"),
    ),
    (
        lambda r: r.segment_head != "linear" and r.loss != SEGMENTATION,
        "`segment_head` is for the loss `segmentation`",
        ("segment_head", "loss"),
    ),
    (
        lambda r: r.lora_rank and r.freeze,
        "`lora_rank` trains matrices of the backbone, which `freeze` does not train",
        ("lora_rank", "freeze"),
    ),
)


def check_recipe(recipe):
    """Check that each setting is in range, and that they go together."""
    _check_ranges(recipe)
    _check_choices(recipe)
    for is_wrong, rule, fields in COMBINATIONS:
        if is_wrong(recipe):
            received = ", ".join(f"{field}={getattr(recipe, field)!r}" for field in fields)
            raise ValueError(f"{rule}. Received: {received}")
    # The model's options must go together.
    names = "pooling", "position_embedding", "position_placement", "axial"
    VitOptions(1, 4, 1, 1, 1, image_size=None, **{name: getattr(recipe, name) for name in names})


def check_accumulation(recipe, dtype):
    """Raise an error if a recipe accumulates gradients that are computed in float16."""
    if recipe.accumulation_steps > 1 and dtype in ("float16", "mixed_float16"):
        # A part with overflowing gradients is skipped, which would shift all later parts.
        raise ValueError(
            "`accumulation_steps` cannot be combined with float16; use `mixed_bfloat16`. "
            f"Received: accumulation_steps={recipe.accumulation_steps}"
        )


def _is_rising(values):
    return all(start < end for start, end in itertools.pairwise(values))


def _check_ranges(recipe):
    rules = [
        (WHOLE, "be a whole number", is_integer),
        ((*POSITIVE, *NOT_NEGATIVE, *SHARES, *OTHER_NUMBERS), "be a number", is_number),
        (("boundaries",), "be whole numbers", lambda values: all(map(is_integer, values))),
        (POSITIVE, "be positive", lambda value: 0 < value < math.inf),
        (NOT_NEGATIVE, "not be negative", lambda value: 0 <= value < math.inf),
        (SHARES, "be at least 0 and less than 1", lambda value: 0 <= value < 1),
        (("min_crop_area",), "be greater than 0 and at most 1", lambda value: 0 < value <= 1),
        (("seed",), "be less than 2**32", lambda value: value < 2**32),
        (("learning_rates",), "be positive", lambda rates: all(0 < r < math.inf for r in rates)),
    ]
    for fields, rule, is_right in rules:
        for field in fields:
            value = getattr(recipe, field)
            if value is not None and not is_right(value):
                raise ValueError(f"`{field}` must {rule}. Received: {field}={value!r}")


def _check_choices(recipe):
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        # The choices of a setting that may be None are inside a union.
        kinds = (field.type,) if value is None else (field.type, *typing.get_args(field.type))
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                check_choice(field.name, value, typing.get_args(kind))
