"""Tables 1, 3 and 4 of the ViT paper (arXiv 2010.11929): sizes of models, settings of training."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """A row of Table 1. Depth and widths are those of its builders in `VARIANTS`.

    Args:
        model: name in the paper.
        parameters: number of parameters as printed, in millions.
        builders: the builders of this size; they differ in the side of a patch.
    """

    model: str
    parameters: int
    builders: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """A row of Table 3.

    Args:
        models: names in the paper.
        pretraining: name of the pre-training set, a key of `PRETRAINING`.
        epochs: numbers of epochs, one for each of the recipes.
        learning_rate: base learning rate.
        decay: decay of the learning rate.
        weight_decay: decoupled weight decay.
        dropout: dropout rate.
        recipes: names of the recipes with these settings.
    """

    models: str
    pretraining: str
    epochs: tuple[int, ...]
    learning_rate: float
    decay: str
    weight_decay: float
    dropout: float
    recipes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FinetuningSettings:
    """A row of Table 4.

    Args:
        datasets: names of datasets, keys of `TITLES`.
        steps: number of steps.
        learning_rates: base learning rates, of which one is chosen on held-out images.
        recipes: names of the recipes with these settings.
    """

    datasets: tuple[str, ...]
    steps: int
    learning_rates: tuple[float, ...]
    recipes: tuple[str, ...]


TABLE_1 = (
    ModelSize("ViT-Base", 86, ("ViT_B16", "ViT_B32")),
    ModelSize("ViT-Large", 307, ("ViT_L16", "ViT_L32")),
    ModelSize("ViT-Huge", 632, ("ViT_H14",)),
)
_JFT, _21K, _1K = "jft300m", "imagenet21k", "imagenet2012"
TABLE_3 = tuple(
    PretrainingSettings(*row)
    for row in (
        ("ViT-B/{16,32}", _JFT, (7,), 8e-4, "linear", 0.1, 0.0, ("jft300m_vit_b",)),
        ("ViT-L/32", _JFT, (7,), 6e-4, "linear", 0.1, 0.0, ("jft300m_vit_l32",)),
        (
            *("ViT-L/16", _JFT, (7, 14), 4e-4, "linear", 0.1, 0.0),
            ("jft300m_vit_l16", "jft300m_vit_l16_14_epochs"),
        ),
        ("ViT-H/14", _JFT, (14,), 3e-4, "linear", 0.1, 0.0, ("jft300m_vit_h14",)),
        ("R50x{1,2}", _JFT, (7,), 1e-3, "linear", 0.1, 0.0, ("jft300m_r50",)),
        ("R101x1", _JFT, (7,), 8e-4, "linear", 0.1, 0.0, ("jft300m_r101",)),
        ("R152x{1,2}", _JFT, (7,), 6e-4, "linear", 0.1, 0.0, ("jft300m_r152",)),
        ("R50+ViT-B/{16,32}", _JFT, (7,), 8e-4, "linear", 0.1, 0.0, ("jft300m_r50_vit_b",)),
        ("R50+ViT-L/32", _JFT, (7,), 2e-4, "linear", 0.1, 0.0, ("jft300m_r50_vit_l32",)),
        (
            *("R50+ViT-L/16", _JFT, (7, 14), 4e-4, "linear", 0.1, 0.0),
            ("jft300m_r50_vit_l16", "jft300m_r50_vit_l16_14_epochs"),
        ),
        ("ViT-B/{16,32}", _21K, (90,), 1e-3, "linear", 0.03, 0.1, ("pretrain",)),
        (
            *("ViT-L/{16,32}", _21K, (30, 90), 1e-3, "linear", 0.03, 0.1),
            ("imagenet21k_vit_l_30_epochs", "pretrain"),
        ),
        ("ViT-*", _1K, (300,), 3e-3, "cosine", 0.3, 0.1, ("imagenet_vit",)),
    )
)
_SMALL = (0.001, 0.003, 0.01, 0.03)
TABLE_4 = (
    FinetuningSettings(
        ("imagenet2012",),
        20_000,
        (0.003, 0.01, 0.03, 0.06),
        ("finetune", "finetune_imagenet_512", "finetune_imagenet_518"),
    ),
    FinetuningSettings(("cifar100", "cifar10"), 10_000, _SMALL, ("finetune_cifar",)),
    FinetuningSettings(
        ("oxford_iiit_pet", "oxford_flowers102"), 500, _SMALL, ("finetune_pets_flowers",)
    ),
    FinetuningSettings(("vtab",), 2500, (0.01,), ("finetune_vtab",)),
)
