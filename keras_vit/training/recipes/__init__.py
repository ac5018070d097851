"""The paper's recipes, and those made from them, as rows of a table.

A learning rate where the paper chooses among several is the one that `vit_jax/configs/common.py`
has, and so are the steps of the warm-up of a fine-tuning run.
"""

import dataclasses

from keras_vit.training.recipes.recipe import Recipe

TABLE_3 = "Table 3 of the ViT paper (arXiv 2010.11929)"
TABLE_4 = "Table 4 of the ViT paper (arXiv 2010.11929)"
AUGREG = "How to train your ViT (arXiv 2106.10270), `vit_i21k.py` of big_vision, ImageNet-21k"
BETTER = "Better plain ViT baselines (arXiv 2205.01580), `vit_s16_i1k.py` of big_vision, ImageNet"
# Of Table 4 for CIFAR, Pets and Flowers.
SMALL_DATASETS = (0.001, 0.003, 0.01, 0.03)
HYPER_RULE = "BiT-HyperRule, `bit_hyperrule.py` of big_transfer"

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
# Appendix B.1.2, which says nothing of weight decay.
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
# A flipped digit is no digit, and a small crop is any.
DIGITS_PRETRAIN = dataclasses.replace(
    PRETRAIN,
    image_size=16,
    batch_size=32,
    warmup_steps=50,
    epochs=100,
    min_crop_area=0.5,
    flip="never",
)
DIGITS_MASKED_PATCHES = dataclasses.replace(
    MASKED_PATCHES,
    image_size=16,
    batch_size=32,
    learning_rate=1e-3,
    warmup_steps=50,
    steps=None,
    epochs=100,
    min_crop_area=0.5,
    flip="never",
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


def _jft(epochs, learning_rate):
    changes = {"weight_decay": 0.1, "dropout": 0.0}
    return dataclasses.replace(PRETRAIN, epochs=epochs, learning_rate=learning_rate, **changes)


def _finetune(steps, learning_rate=0.03, warmup_steps=500, learning_rates=()):
    changes = {"steps": steps, "learning_rate": learning_rate, "warmup_steps": warmup_steps}
    return dataclasses.replace(FINETUNE, **changes, learning_rates=learning_rates)


def _imagenet(image_size):
    """Table 2's fine-tuning on ImageNet, at higher resolution and with averaged weights."""
    return dataclasses.replace(FINETUNE, image_size=image_size, average_momentum=0.9999)


def _hyper_rule(image_size, random_crop_from, boundaries, steps, warmup_steps, augmentation):
    """BiT-HyperRule for one size of a dataset's images and one size of the dataset."""
    return Recipe(
        image_size=image_size,
        random_crop_from=random_crop_from,
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


def _hyper_rules():
    sizes = {
        "small": ((200, 300, 400), 500, 100, "none"),
        "medium": ((3000, 6000, 9000), 10_000, 500, "bit"),
        "large": ((6000, 12_000, 18_000), 20_000, 500, "bit"),
    }
    for name, schedule in sizes.items():
        yield f"bit_hyperrule_{name}", _hyper_rule(480, 512, *schedule)
        yield f"bit_hyperrule_{name}_tiny_images", _hyper_rule(128, 160, *schedule)


RECIPES = {
    "pretrain": PRETRAIN,
    "finetune": FINETUNE,
    "digits_pretrain": DIGITS_PRETRAIN,
    "digits_masked_patches": DIGITS_MASKED_PATCHES,
    "digits_finetune": DIGITS_FINETUNE,
    "jft300m_vit_b": _jft(7, 8e-4),
    "jft300m_vit_l32": _jft(7, 6e-4),
    "jft300m_vit_l16": _jft(7, 4e-4),
    "jft300m_vit_l16_14_epochs": _jft(14, 4e-4),
    "jft300m_vit_h14": _jft(14, 3e-4),
    "jft300m_r50": _jft(7, 1e-3),
    "jft300m_r101": _jft(7, 8e-4),
    "jft300m_r152": _jft(7, 6e-4),
    "jft300m_r50_vit_b": _jft(7, 8e-4),
    "jft300m_r50_vit_l32": _jft(7, 2e-4),
    "jft300m_r50_vit_l16": _jft(7, 4e-4),
    "jft300m_r50_vit_l16_14_epochs": _jft(14, 4e-4),
    "imagenet21k_vit_l_30_epochs": dataclasses.replace(PRETRAIN, epochs=30),
    "imagenet_vit": dataclasses.replace(
        PRETRAIN, epochs=300, learning_rate=3e-3, decay="cosine", weight_decay=0.3, clip_norm=1.0
    ),
    "augreg_imagenet21k": dataclasses.replace(
        PRETRAIN,
        epochs=300,
        decay="cosine",
        weight_decay=0.1,
        dropout=0.0,
        pre_logits=False,
        clip_norm=1.0,
        loss="sigmoid",
        head_bias=-10.0,
        augmentation="medium1",
        pooling="gap",
    ),
    "better_vit_s16_90_epochs": dataclasses.replace(
        PRETRAIN,
        batch_size=1024,
        decay="cosine",
        weight_decay=0.1,
        dropout=0.0,
        clip_norm=1.0,
        augmentation="light2",
        pooling="gap",
        position_embedding="sincos2d",
    ),
    "masked_patches": MASKED_PATCHES,
    "finetune_imagenet_512": _imagenet(512),
    "finetune_imagenet_518": _imagenet(518),
    "finetune_cifar": _finetune(10_000, learning_rates=SMALL_DATASETS),
    "finetune_pets_flowers": _finetune(500, warmup_steps=100, learning_rates=SMALL_DATASETS),
    "finetune_augreg": _finetune(500, warmup_steps=100),
    "finetune_vtab": _finetune(2500, learning_rate=0.01),
    **dict(_hyper_rules()),
}

# Where each is from, and the accuracy on ImageNet that it led to unless another is named.
SOURCES = {
    "pretrain": (f"{TABLE_3}, ImageNet-21k", "ViT-L/16 85.30 %"),
    "finetune": (f"{TABLE_4}, ImageNet", "from JFT-300M: ViT-B/16 84.15 %"),
    "digits_pretrain": ("`pretrain`, for the 8 x 8 pixel digits", ""),
    "digits_masked_patches": ("`masked_patches`, for the 8 x 8 pixel digits", ""),
    "digits_finetune": ("`finetune`, for the 8 x 8 pixel digits", ""),
    "jft300m_vit_b": (TABLE_3, "ViT-B/32 80.73 %, ViT-B/16 84.15 %"),
    "jft300m_vit_l32": (TABLE_3, "84.37 %"),
    "jft300m_vit_l16": (TABLE_3, "86.30 %"),
    "jft300m_vit_l16_14_epochs": (TABLE_3, "87.12 %"),
    "jft300m_vit_h14": (TABLE_3, "88.08 %"),
    "jft300m_r50": (TABLE_3, "R50x1 77.54 %, R50x2 82.12 %"),
    "jft300m_r101": (TABLE_3, "R101x1 80.67 %"),
    "jft300m_r152": (TABLE_3, "R152x1 81.88 %, R152x2 84.97 %"),
    "jft300m_r50_vit_b": (TABLE_3, "R50+ViT-B/32 84.90 %, R50+ViT-B/16 85.58 %"),
    "jft300m_r50_vit_l32": (TABLE_3, "85.68 %"),
    "jft300m_r50_vit_l16": (TABLE_3, "86.60 %"),
    "jft300m_r50_vit_l16_14_epochs": (TABLE_3, "87.12 %"),
    "imagenet21k_vit_l_30_epochs": (f"{TABLE_3}, ImageNet-21k", ""),
    "imagenet_vit": (f"{TABLE_3}, ImageNet", "ViT-B/16 77.91 % (table 5)"),
    "augreg_imagenet21k": (AUGREG, "ViT-B/16 85.49 %, fine-tuned at 384 pixels"),
    "better_vit_s16_90_epochs": (BETTER, "ViT-S/16 76.5 %"),
    "masked_patches": (
        "Appendix B.1.2 of the ViT paper, JFT-300M",
        "ViT-B/16 79.9 %, fine-tuned; from scratch 77.9 %",
    ),
    "finetune_imagenet_512": ("Tables 2 and 4 of the ViT paper, ImageNet", "ViT-L/16 87.76 %"),
    "finetune_imagenet_518": ("Tables 2 and 4 of the ViT paper, ImageNet", "ViT-H/14 88.55 %"),
    "finetune_cifar": (TABLE_4, "ViT-H/14: CIFAR-10 99.50 %, CIFAR-100 94.55 %"),
    "finetune_pets_flowers": (TABLE_4, "ViT-H/14: Pets 97.56 %, Flowers 99.68 %"),
    "finetune_augreg": ("`configs/augreg.py` of vit_jax, Oxford-IIIT Pets", ""),
    "finetune_vtab": (TABLE_4, "ViT-H/14: mean of the 19 tasks 77.63 %"),
    "bit_hyperrule_small": (f"{HYPER_RULE}, below 20,000 images", "R152x4: Pets 96.62 %"),
    "bit_hyperrule_small_tiny_images": (f"{HYPER_RULE}, below 20,000 images", ""),
    "bit_hyperrule_medium": (f"{HYPER_RULE}, below 500,000 images", ""),
    "bit_hyperrule_medium_tiny_images": (
        f"{HYPER_RULE}, below 500,000 images",
        "R152x4: CIFAR-10 99.37 %, CIFAR-100 93.51 %",
    ),
    "bit_hyperrule_large": (f"{HYPER_RULE}, 500,000 images and more", "R152x4 87.54 %"),
    "bit_hyperrule_large_tiny_images": (f"{HYPER_RULE}, 500,000 images and more", ""),
}
