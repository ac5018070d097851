"""The table of studies: what differs between the lines of each. Nothing here needs Keras."""

import dataclasses
from collections.abc import Callable

from keras_vit.models.options import is_resnet
from keras_vit.models.variants import find_variant, with_sizes
from keras_vit.training.recipes import RECIPES

DATA_SIZE, DATASETS, PRETRAINING, SHAPES = "data-size", "datasets", "pretraining", "shapes"
# What a model of the study `pretraining` has learned before it is fine-tuned.
SCRATCH, MASKED_PATCHES, CLASSES = "from scratch", "masked patches", "classes"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One line of a study.

    Args:
        name: its name in the table.
        model: name of a variant.
        changes: the recipe's fields that differ.
        fraction: share of the training images.
        data: the dataset that is trained on; `None` for that of the study.
        tuned: pairs of fields of the recipe and their values, chosen on the validation images.
        is_scratch: whether the model is trained on the images of the fine-tuning alone.
    """

    name: str
    model: str
    changes: dict = dataclasses.field(default_factory=dict)
    fraction: float = 1.0
    data: str | None = None
    tuned: tuple[tuple[str, float], ...] = ()
    is_scratch: bool = False


@dataclasses.dataclass(frozen=True)
class Study:
    """One study.

    Args:
        name: its name in the command.
        title: title of its figure.
        what: what is changed, for the help and the errors.
        settings: function of a `Plan` that yields the settings.
        options: names of options that this study alone has.
        needs_patches: whether its models must be Vision Transformers.
        is_by_compute: whether its figure shows the accuracy by the compute.
    """

    name: str
    title: str
    what: str
    settings: Callable
    options: tuple[str, ...] = ()
    needs_patches: bool = False
    is_by_compute: bool = False


def _changing(kinds):
    """Return a function that yields each model of a plan with each of some changes by name."""

    def settings(plan):
        found = kinds(plan) if callable(kinds) else kinds
        for model in plan.models:
            for name, changes in found.items():
                yield Setting(f"{model}, {name}", model, changes)

    return settings


def _models(plan):
    for model in plan.models:
        yield Setting(model, model)


def _data_sizes(plan):
    for model in plan.models:
        for share in plan.fractions:
            yield Setting(f"{model}, {100 * share:.12g} %", model, {}, share)


def _datasets(plan):
    for model in plan.models:
        for data in plan.datasets:
            yield Setting(f"{model}, {data}", model, data=data)


def _optimizers(plan):
    """Adam, and the momentum of `big_transfer` with its rate for a batch, 0.03 for 256 images."""
    rate = 0.03 * plan.recipe.batch_size / 256
    sgd = {"optimizer": "sgd", "learning_rate": rate, "weight_decay": 1e-4}
    return {"Adam": {"optimizer": "adamw"}, "SGD": sgd}


# Settings of the recipe that are those of masked patches, whatever they are for classes.
_OF_MASKED_PATCHES = (
    *("loss", "decay", "boundaries", "weight_decay", "dropout", "pre_logits", "augmentation"),
    *("label_smoothing", "head_bias", "class_balance"),
)


def _pretraining(plan):
    masked = {field: getattr(RECIPES["masked_patches"], field) for field in _OF_MASKED_PATCHES}
    for model in plan.models:
        yield Setting(f"{model}, {SCRATCH}", model, is_scratch=True)
        yield Setting(f"{model}, {MASKED_PATCHES}", model, masked)
        yield Setting(f"{model}, {CLASSES}", model)


def _shapes(plan):
    """Each model, and it with one of its sizes, or all, multiplied by each factor."""
    for model in plan.models:
        yield Setting(model, model)
        variant = find_variant(model)
        for name, sizes in () if is_resnet(variant) else _SHAPES.items():
            for factor in plan.factors:
                changed = with_sizes(variant, {s: _scaled(variant, s, factor) for s in sizes})
                yield Setting(f"{model}, {name} x {factor:g}", changed.name)


# Appendix D.2 divides the patch, which makes the sequence longer. Heads keep their width.
_SHAPES = {
    "depth": ("depth",),
    "width": ("embedding_dim", "num_heads"),
    "MLP": ("mlp_dim",),
    "patch": ("patch_size",),
    "all": ("depth", "embedding_dim", "num_heads", "mlp_dim", "patch_size"),
}


def _scaled(variant, size, factor):
    value = variant.patch_size[0] if size == "patch_size" else getattr(variant, size)
    scaled = value / factor if size == "patch_size" else value * factor
    if scaled != int(scaled) or scaled < 1:
        raise ValueError(
            f"`factors` must leave {size}={value} of {variant.name} a whole number. "
            f"Received: factors with {factor:g}"
        )
    return int(scaled)


# Table 8 of the paper, and sines and cosines.
POSITIONS = {
    "none": {"position_embedding": "none"},
    "1-D, learned": {"position_embedding": "learned"},
    "1-D, every layer": {
        "position_embedding": "learned",
        "position_placement": "every_layer",
    },
    "1-D, shared": {
        "position_embedding": "learned",
        "position_placement": "every_layer_shared",
    },
    "2-D, learned": {"position_embedding": "learned2d"},
    "2-D, every layer": {
        "position_embedding": "learned2d",
        "position_placement": "every_layer",
    },
    "2-D, shared": {
        "position_embedding": "learned2d",
        "position_placement": "every_layer_shared",
    },
    "relative": {"position_embedding": "relative"},
    "2-D, sines and cosines": {"position_embedding": "sincos2d"},
}
# A class token has no place in a row or a column.
_AXIAL = {
    "all patches": {"pooling": "gap", "axial": False},
    "axial": {"pooling": "gap", "axial": True},
}
_POOLINGS = {
    "class token": {"pooling": "token"},
    "mean of patches": {"pooling": "gap"},
    "attention": {"pooling": "map"},
}
# To add a study, add a row here; the command and its help follow.
_TABLE = (
    Study(
        "scaling",
        "Accuracy against the compute of the training",
        "the model",
        _models,
        is_by_compute=True,
    ),
    Study(
        DATA_SIZE,
        "Accuracy against the number of training images",
        "the share of the training images",
        _data_sizes,
        options=("fractions",),
    ),
    Study(
        DATASETS,
        "Transfer from pre-training sets",
        "the dataset that is trained on before the fine-tuning",
        _datasets,
        options=("datasets",),
    ),
    Study(
        PRETRAINING,
        "Pre-training, and none, at equal numbers of images",
        "what is learned before the fine-tuning: nothing, masked patches, classes",
        _pretraining,
        needs_patches=True,
    ),
    Study("optimizers", "Adam against SGD", "the optimizer", _changing(_optimizers)),
    Study(
        SHAPES,
        "Shapes of the Transformer",
        "depth, width, MLP and patches",
        _shapes,
        options=("factors",),
        needs_patches=True,
        is_by_compute=True,
    ),
    Study(
        "poolings",
        "Pooling of the tokens",
        "the input of the head",
        _changing(_POOLINGS),
        needs_patches=True,
    ),
    Study(
        "positions",
        "Position embeddings",
        "the position embedding, and where it is added",
        _changing(lambda plan: {name: POSITIONS[name] for name in plan.positions}),
        options=("positions",),
        needs_patches=True,
    ),
    Study(
        "axial",
        "Attention among all patches, and along rows and columns",
        "attention among all patches, or along rows and then columns",
        _changing(_AXIAL),
        needs_patches=True,
        is_by_compute=True,
    ),
)
STUDIES = {row.name: row for row in _TABLE}


def has_patches(setting):
    """Return whether the model of a setting is a Vision Transformer."""
    return not is_resnet(find_variant(setting.model))
