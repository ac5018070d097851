"""The table of recipes, those of the paper and others: `ROWS` by name, and their `RECIPES`.

Where the paper chooses among several learning rates, a recipe has the rate of
`vit_jax/configs/common.py`. The warm-up steps of a fine-tuning run are from there, too.
"""

import dataclasses

from keras_vit.training.recipe import Recipe

TABLE_3 = "Table 3 of the ViT paper (arXiv 2010.11929)"
TABLE_4 = "Table 4 of the ViT paper (arXiv 2010.11929)"
TABLES_2_AND_4 = "Tables 2 and 4 of the ViT paper, ImageNet"
AUGREG = "How to train your ViT (arXiv 2106.10270), `vit_i21k.py` of big_vision, ImageNet-21k"
BETTER = "Better plain ViT baselines (arXiv 2205.01580), `vit_s16_i1k.py` of big_vision, ImageNet"
HYPER_RULE = "BiT-HyperRule, `bit_hyperrule.py` of big_transfer"
MATCHING = "Function matching (arXiv 2106.05237), `bit_i1k.py` of big_vision, ImageNet"
# Learning rates of Table 4 for CIFAR, Pets and Flowers.
SMALL_DATASETS = (0.001, 0.003, 0.01, 0.03)

PRETRAIN = Recipe(
    image_size=224,
    batch_size=4096,
    optimizer="adamw",
    learning_rate=1e-3,
    decay="linear",
    warmup_steps=10_000,
    epochs=90,
    weight_decay=0.03,
    dropout=0.1,
    pre_logits=True,
)
FINETUNE = Recipe(
    image_size=384,
    batch_size=512,
    optimizer="sgd",
    learning_rate=0.03,
    decay="cosine",
    warmup_steps=500,
    learning_rates=(0.003, 0.01, 0.03, 0.06),
    steps=20_000,
    clip_norm=1.0,
)
# Appendix B.1.2 does not mention weight decay.
MASKED_PATCHES = dataclasses.replace(
    PRETRAIN,
    learning_rate=2e-4,
    decay="cosine",
    epochs=None,
    steps=1_000_000,
    weight_decay=0.0,
    dropout=0.0,
    pre_logits=False,
    loss="mean_colour",
)
# A flipped digit is not a digit, and a small crop could be any digit.
_DIGITS = {"image_size": 16, "batch_size": 32, "warmup_steps": 50, "epochs": 100}
_DIGITS |= {"min_crop_area": 0.5, "flip": "never"}
DIGITS_PRETRAIN = dataclasses.replace(PRETRAIN, **_DIGITS)
DIGITS_MASKED_PATCHES = dataclasses.replace(
    MASKED_PATCHES, **_DIGITS, learning_rate=1e-3, steps=None
)
DIGITS_FINETUNE = dataclasses.replace(
    FINETUNE,
    image_size=24,
    batch_size=32,
    warmup_steps=10,
    steps=70,
    min_crop_area=None,
    flip="never",
)
# For 32 x 32 pixel images such as CIFAR's, and models that a laptop trains in minutes.
_TINY_IMAGES = {"image_size": 32, "batch_size": 128, "min_crop_area": 0.3}
# Random crops replace the paper's scales from 0.5 to 2, linear decay its polynomial of power 0.9.
SEGMENT = Recipe(
    image_size=512,
    batch_size=8,
    optimizer="sgd",
    learning_rate=1e-3,
    decay="linear",
    warmup_steps=0,
    steps=160_000,
    min_crop_area=0.25,
    loss="segmentation",
    monitor="val_mean_iou",
)
_BIG_VISION = dataclasses.replace(
    PRETRAIN, decay="cosine", weight_decay=0.1, dropout=0.0, clip_norm=1.0, pooling="gap"
)


def _jft(name, epochs, learning_rate, reported):
    changes = {"epochs": epochs, "learning_rate": learning_rate}
    row = (f"jft300m_{name}", PRETRAIN, TABLE_3, reported)
    return _row(*row, weight_decay=0.1, dropout=0.0, **changes)


def _hyper_rules():
    """BiT-HyperRule for each range of the number of images and of their sizes."""
    sizes = {
        "small": ("below 20,000 images", (200, 300, 400), 500, 100, "none"),
        "medium": ("below 500,000 images", (3000, 6000, 9000), 10_000, 500, "bit"),
        "large": ("500,000 images and more", (6000, 12_000, 18_000), 20_000, 500, "bit"),
    }
    reported = {
        "small": "R152x4: Pets 96.62 %",
        "medium_tiny_images": "R152x4: CIFAR-10 99.37 %, CIFAR-100 93.51 %",
        "large": "R152x4 87.54 %",
    }
    for size, (num_images, boundaries, steps, warmup_steps, augmentation) in sizes.items():
        for name, side, crop_from in ((size, 480, 512), (f"{size}_tiny_images", 128, 160)):
            recipe = Recipe(
                image_size=side,
                random_crop_from=crop_from,
                min_crop_area=None,
                flip="always",
                batch_size=512,
                optimizer="sgd",
                learning_rate=0.003,
                decay="staircase",
                warmup_steps=warmup_steps,
                boundaries=boundaries,
                steps=steps,
                augmentation=augmentation,
            )
            source = f"{HYPER_RULE}, {num_images}"
            yield RecipeRow(f"bit_hyperrule_{name}", recipe, source, reported.get(name, ""))


@dataclasses.dataclass(frozen=True)
class RecipeRow:
    """A recipe with its origin.

    Args:
        name: name of the recipe.
        recipe: the `Recipe`.
        source: where its settings are from.
        reported: accuracy that the source reports, on ImageNet unless it names another dataset.
    """

    name: str
    recipe: Recipe
    source: str
    reported: str = ""


def _row(name, base, source, reported="", **changes):
    """Return the row of a recipe with some settings changed."""
    return RecipeRow(name, dataclasses.replace(base, **changes), source, reported)


# To add a recipe, add a row here; the command, its help and the page of recipes follow.
_TABLE = (
    _row("pretrain", PRETRAIN, f"{TABLE_3}, ImageNet-21k", "ViT-L/16 85.30 %"),
    _row("finetune", FINETUNE, f"{TABLE_4}, ImageNet", "ViT-B/16 from JFT-300M, 84.15 %"),
    _row("digits_pretrain", DIGITS_PRETRAIN, "`pretrain`, for the 8 x 8 pixel digits"),
    _row(
        "digits_masked_patches",
        DIGITS_MASKED_PATCHES,
        "`masked_patches`, for the 8 x 8 pixel digits",
    ),
    _row("digits_finetune", DIGITS_FINETUNE, "`finetune`, for the 8 x 8 pixel digits"),
    _row(
        *("tiny_images_pretrain", PRETRAIN, "`pretrain`, for 32 x 32 pixel images"),
        **{**_TINY_IMAGES, "warmup_steps": 200, "steps": 1000, "epochs": None},
        **{"learning_rate": 1e-3, "weight_decay": 0.1, "dropout": 0.0, "pre_logits": False},
    ),
    _row(
        *("tiny_images_finetune", FINETUNE, "`finetune`, for 32 x 32 pixel images"),
        **{**_TINY_IMAGES, "warmup_steps": 20, "steps": 200},
    ),
    _row("segment", SEGMENT, "Segmenter (arXiv 2105.05633), section 4.2"),
    _jft("vit_b", 7, 8e-4, "ViT-B/32 80.73 %, ViT-B/16 84.15 %"),
    _jft("vit_l32", 7, 6e-4, "84.37 %"),
    _jft("vit_l16", 7, 4e-4, "86.30 %"),
    _jft("vit_l16_14_epochs", 14, 4e-4, "87.12 %"),
    _jft("vit_h14", 14, 3e-4, "88.08 %"),
    _jft("r50", 7, 1e-3, "R50x1 77.54 %, R50x2 82.12 %"),
    _jft("r101", 7, 8e-4, "R101x1 80.67 %"),
    _jft("r152", 7, 6e-4, "R152x1 81.88 %, R152x2 84.97 %"),
    _jft("r50_vit_b", 7, 8e-4, "R50+ViT-B/32 84.90 %, R50+ViT-B/16 85.58 %"),
    _jft("r50_vit_l32", 7, 2e-4, "85.68 %"),
    _jft("r50_vit_l16", 7, 4e-4, "86.60 %"),
    _jft("r50_vit_l16_14_epochs", 14, 4e-4, "87.12 %"),
    _row("imagenet21k_vit_l_30_epochs", PRETRAIN, f"{TABLE_3}, ImageNet-21k", epochs=30),
    _row(
        *("imagenet_vit", PRETRAIN, f"{TABLE_3}, ImageNet", "ViT-B/16 77.91 % (table 5)"),
        **{"epochs": 300, "learning_rate": 3e-3, "decay": "cosine"},
        **{"weight_decay": 0.3, "clip_norm": 1.0},
    ),
    _row(
        *("augreg_imagenet21k", _BIG_VISION, AUGREG),
        "ViT-B/16 85.49 %, fine-tuned at 384 pixels",
        **{"epochs": 300, "pre_logits": False, "loss": "sigmoid", "head_bias": -10.0},
        augmentation="medium1",
    ),
    _row(
        *("better_vit_s16_90_epochs", _BIG_VISION, BETTER, "ViT-S/16 76.5 %"),
        **{"batch_size": 1024, "augmentation": "light2", "position_embedding": "sincos2d"},
    ),
    _row(
        *("masked_patches", MASKED_PATCHES, "Appendix B.1.2 of the ViT paper, JFT-300M"),
        "ViT-B/16 79.9 %, fine-tuned; from scratch 77.9 %",
    ),
    # At higher resolution and with averaged weights.
    _row(
        *("finetune_imagenet_512", FINETUNE, TABLES_2_AND_4, "ViT-L/16 87.76 %"),
        **{"image_size": 512, "ema_momentum": 0.9999},
    ),
    _row(
        *("finetune_imagenet_518", FINETUNE, TABLES_2_AND_4, "ViT-H/14 88.55 %"),
        **{"image_size": 518, "ema_momentum": 0.9999},
    ),
    _row(
        *("finetune_cifar", FINETUNE, TABLE_4, "ViT-H/14: CIFAR-10 99.50 %, CIFAR-100 94.55 %"),
        **{"steps": 10_000, "learning_rates": SMALL_DATASETS},
    ),
    _row(
        *("finetune_pets_flowers", FINETUNE, TABLE_4),
        "ViT-H/14: Pets 97.56 %, Flowers 99.68 %",
        **{"steps": 500, "warmup_steps": 100, "learning_rates": SMALL_DATASETS},
    ),
    _row(
        *("finetune_augreg", FINETUNE, "`configs/augreg.py` of vit_jax, Oxford-IIIT Pets"),
        **{"steps": 500, "warmup_steps": 100, "learning_rates": ()},
    ),
    _row(
        *("finetune_vtab", FINETUNE, TABLE_4, "ViT-H/14: mean of the 19 tasks 77.63 %"),
        **{"steps": 2500, "learning_rate": 0.01, "learning_rates": ()},
    ),
    *_hyper_rules(),
    _row(
        # For `BiT_R50x1` with the teacher `BiT_R152x2/teacher_224`.
        *("function_matching", _BIG_VISION, MATCHING),
        **{"pre_logits": False, "pooling": "token", "learning_rate": 0.03, "epochs": 1200},
        **{"warmup_steps": 5000, "weight_decay": 0.01, "augmentation": "mixup"},
        label_weight=0.0,
    ),
)
ROWS = {row.name: row for row in _TABLE}
RECIPES = {name: row.recipe for name, row in ROWS.items()}


def find_recipe(recipe):
    """Return the `Recipe` of an argument: one, the name of a row, or what JSON made of one."""
    if isinstance(recipe, dict):
        lists = {name: tuple(value) for name, value in recipe.items() if isinstance(value, list)}
        return Recipe(**{**recipe, **lists})
    if not isinstance(recipe, Recipe) and recipe not in RECIPES:
        raise ValueError(
            f"`recipe` must be a `Recipe` or one of {', '.join(RECIPES)}. "
            f"Received: recipe={recipe!r}"
        )
    return RECIPES.get(recipe, recipe)
