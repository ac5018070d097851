"""The table of studies: the settings that each study compares. It does not import Keras."""

import dataclasses
from collections.abc import Callable

from keras_vit.core.arguments import check_choice
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.experiments.paper_results import paper_rows
from keras_vit.models.options import is_resnet
from keras_vit.models.variants import find_variant, with_sizes
from keras_vit.training.recipe import RECIPES


@dataclasses.dataclass(frozen=True)
class Setting:
    """One of the settings that a study compares.

    Args:
        name: name of the setting in `results.csv`.
        model: name of a variant.
        changes: dictionary from fields of the recipe to the values in this setting.
        fraction: share of the training images to train on.
        data: name of the dataset to train on; `None` for the study's dataset.
        tuned: dictionary from fields of the recipe to values chosen by validation accuracy.
        is_only_finetuned: whether the model is trained only on the fine-tuning images.
    """

    name: str
    model: str
    changes: dict = dataclasses.field(default_factory=dict)
    fraction: float = 1.0
    data: str | None = None
    tuned: dict = dataclasses.field(default_factory=dict)
    is_only_finetuned: bool = False

    @property
    def full_name(self):
        """The name, followed by the tuned values."""
        return self.name + "".join(f", {field} {value:g}" for field, value in self.tuned.items())

    def applied_to(self, recipe):
        """Return a recipe with the changed and tuned values of this setting."""
        return dataclasses.replace(recipe, **self.changes, **self.tuned)


@dataclasses.dataclass(frozen=True)
class Study:
    """One study.

    Args:
        source: the section of the paper.
        name: name of the study.
        title: title of the figure.
        what: description of what the study compares, for the help text.
        needs_patches: `"yes"` if the models may not be ResNets, or empty.
        shows_compute: `"yes"` if the figure shows accuracy against compute, or empty.
        settings: function of a recipe, the name of a model and `values` that yields `Setting`s.
        values: default of the values to compare.
        parse: function that converts a value from a string.
    """

    source: str
    name: str
    title: str
    what: str
    needs_patches: str
    shows_compute: str
    settings: Callable
    values: tuple = ()
    parse: Callable = str


def _changing(kinds):
    """Return a `Study.settings` function that yields a setting per value.

    `kinds` is a dictionary from values to changes of the recipe, or to functions of the recipe that
    return the changes.
    """

    def settings(recipe, model, values):
        for value in values:
            check_choice("values", value, tuple(kinds))
            changes = kinds[value](recipe) if callable(kinds[value]) else kinds[value]
            yield Setting(f"{model}, {value}", model, changes)

    return settings


def _models(recipe, model, values):
    yield Setting(model, model)


def _data_sizes(recipe, model, values):
    for share in values:
        yield Setting(f"{model}, {100 * share:.12g} %", model, fraction=share)


def _datasets(recipe, model, values):
    for data in values:
        yield Setting(f"{model}, {data}", model, data=data)


def _sgd(recipe):
    """Return the changes for SGD as in big_transfer: learning rate 0.03 per 256 images."""
    rate = 0.03 * recipe.batch_size / 256
    return {"optimizer": "sgd", "learning_rate": rate, "weight_decay": 1e-4}


_OPTIMIZERS = {"Adam": {"optimizer": "adamw"}, "SGD": _sgd}
# Fields of the recipe `masked_patches` that pre-training on masked patches uses.
_OF_MASKED_PATCHES = (
    *("loss", "decay", "boundaries", "weight_decay", "dropout", "pre_logits", "augmentation"),
    *("label_smoothing", "head_bias", "class_balance"),
)
# From what a model learns before it is fine-tuned to the changes of the recipe.
_PRETRAINING = {
    "from scratch": {},
    "masked patches": {f: getattr(RECIPES["masked_patches"], f) for f in _OF_MASKED_PATCHES},
    "classes": {},
}


def _pretraining(recipe, model, values):
    for setting in _changing(_PRETRAINING)(recipe, model, values):
        is_only_finetuned = setting.name == f"{model}, from scratch"
        yield dataclasses.replace(setting, is_only_finetuned=is_only_finetuned)


# From what is scaled to the options to multiply by a factor. The patch size is divided by the
# factor, as in appendix D.2. The number of heads grows with the width, so that heads keep their
# width.
_SHAPES = {
    "depth": ("depth",),
    "width": ("embedding_dim", "num_heads"),
    "MLP": ("mlp_dim",),
    "patch": ("patch_size",),
    "all": ("depth", "embedding_dim", "num_heads", "mlp_dim", "patch_size"),
}


def _shapes(recipe, model, values):
    """Yield a model, then copies of it with each of the `_SHAPES` scaled by each factor."""
    yield Setting(model, model)
    variant = find_variant(model)
    for name, sizes in () if is_resnet(variant) else _SHAPES.items():
        for factor in values:
            changed = with_sizes(variant, {s: _scaled(variant, s, factor) for s in sizes})
            yield Setting(f"{model}, {name} x {factor:g}", changed.name)


def _scaled(variant, size, factor):
    value = variant.patch_size[0] if size == "patch_size" else getattr(variant, size)
    scaled = value / factor if size == "patch_size" else value * factor
    if scaled != int(scaled) or scaled < 1:
        raise ValueError(
            f"`values` must leave {size}={value} of {variant.name} a whole number. "
            f"Received: the factor {factor:g}"
        )
    return int(scaled)


def _positions(kind, placement):
    return {"position_embedding": kind, "position_placement": placement}


# The position embeddings in Table 8 of the paper, and in addition sines and cosines.
POSITIONS = {
    "none": {"position_embedding": "none"},
    "1-D, learned": {"position_embedding": "learned"},
    "1-D, every layer": _positions("learned", "every_layer"),
    "1-D, shared": _positions("learned", "every_layer_shared"),
    "2-D, learned": {"position_embedding": "learned2d"},
    "2-D, every layer": _positions("learned2d", "every_layer"),
    "2-D, shared": _positions("learned2d", "every_layer_shared"),
    "relative": {"position_embedding": "relative"},
    "2-D, sines and cosines": {"position_embedding": "sincos2d"},
}
# Both use the mean of the patches: a class token would be in no row and no column.
_AXIAL = {
    "all patches": {"pooling": "gap", "axial": False},
    "axial": {"pooling": "gap", "axial": True},
}
_POOLINGS = {
    "class token": {"pooling": "token"},
    "mean of patches": {"pooling": "gap"},
    "attention": {"pooling": "map"},
}
# For each study, the fields `settings`, `values` and `parse` of `Study`; the last two have
# defaults. To add a study, add a row here and in `paper/studies.csv`; the command `keras-vit study`
# and its help read both.
_LAST_FIELDS = {
    "scaling": (_models,),
    "data-size": (_data_sizes, (0.03, 0.1, 0.3, 1.0), float),
    "datasets": (_datasets, (), absolute_name),
    "pretraining": (_pretraining, tuple(_PRETRAINING)),
    "optimizers": (_changing(_OPTIMIZERS), tuple(_OPTIMIZERS)),
    "shapes": (_shapes, (0.5, 2.0), float),
    "poolings": (_changing(_POOLINGS), tuple(_POOLINGS)),
    "positions": (_changing(POSITIONS), tuple(POSITIONS)),
    "axial": (_changing(_AXIAL), tuple(_AXIAL)),
}
STUDIES = {
    row["name"]: Study(*row.values(), *_LAST_FIELDS[row["name"]]) for row in paper_rows("studies")
}
