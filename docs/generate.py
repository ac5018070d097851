"""Writes the pages of docs/ that are tables: weight_maps.md, catalogue.md and recipes.md.

Example: python docs/generate.py
"""

import pathlib

from keras_vit.checkpoints import list_checkpoints
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.formats.keras_hub import KERAS_HUB
from keras_vit.checkpoints.weight_map import as_markdown
from keras_vit.cli.tables import markdown_table
from keras_vit.training.recipes import RECIPES, SOURCES

WEIGHT_MAPS = """# Weight maps

Which array of a file is which variable of the model. `{i}` is the index of a Transformer block,
`{n}` its number from 1; `{s}` and `{u}` are the numbers of a residual unit's stage and of the unit
in it, `{u:02}` with two digits; a tensor of a file may hold several variables. Shapes are those of
the model on the right.

Written by `python docs/generate.py` from the rows in `keras_vit/checkpoints/`, which are read in
both directions.
"""
TITLES = {
    "google": "`google`: vit_jax's released `.npz`",
    "big_vision": "`big_vision`: `.npz`, under `params/`",
    "big_transfer": "`big_transfer`: BiT's `.npz`",
    "timm": "`timm`: `.safetensors`",
    "huggingface": "`huggingface`: `.safetensors`, all but the classifier under `vit.`",
    "keras_hub": "keras-hub, in memory",
}
CATALOGUE = """# Published checkpoints

`keras_vit.from_checkpoint(name)` loads each of these; a builder takes what is behind the slash as
`weights=`. Images are scaled to [-1, 1] (`keras_vit.preprocess`). Classes: 21843 are ImageNet-21k,
1000 ImageNet-1k, 0 an image tower without a head; "(zero)" was published with a head of zeros, for
fine-tuning. The accuracy is that on ImageNet-1k's validation images which the source reports for
this very file.

Written by `python docs/generate.py` from `keras_vit/checkpoints/catalog/published.py`.

| name | size | classes | `pre_logits` | GELU | top-1 | file | source |
| --- | ---: | ---: | ---: | --- | ---: | --- | --- |
"""

RECIPES_PAGE = """# Recipes

`keras-vit train NAME` trains by each of these; every setting is a flag, which `keras-vit train
NAME --help` shows. From Python it is a row of `keras_vit.training.recipes.RECIPES`;
`dataclasses.replace` changes it, `.smoke()` shrinks it to seconds. The last column is the
accuracy that the source reports for what the recipe led to, on ImageNet unless another dataset
is named; none of them was measured here.

SGD has a momentum of 0.9 and AdamW optax's settings; both compute what optax's do. Weight
decay is of kernels alone, and is multiplied with the learning rate as the paper's is. The
learning rate rises linearly from 0 in the warm-up steps; a staircase divides it by 10 after
each of its steps.

Written by `python docs/generate.py` from `keras_vit/training/recipes.py`.

"""
RECIPE_COLUMNS = (
    *("name", "size", "batch", "optimizer", "learning rate", "to choose from", "decay"),
    *("warm-up", "length", "weight decay", "dropout", "clipped at", "source", "reported"),
)


def weight_maps():
    """The page of the weight maps."""
    sections = [
        f"## {TITLES[format.name]}\n\n{as_markdown(format.rows)}\n"
        for format in (*FORMATS.values(), KERAS_HUB)
    ]
    return "\n".join([WEIGHT_MAPS, *sections])


def catalogue():
    """The page of the published checkpoints."""
    return CATALOGUE + "".join(_line(row) for row in list_checkpoints())


def _line(row):
    activation = {"gelu_tanh": "tanh", "gelu": "erf"}.get(row.activation, "-")
    cells = (
        f"`{row.name}`",
        row.image_size,
        f"{row.num_classes}{' (zero)' if row.zero_head else ''}",
        row.representation_size or "-",
        activation,
        f"{row.accuracy:.2f}" if row.accuracy else "-",
        f"`{row.url}`",
        row.source,
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def recipes():
    """The page of the recipes."""
    rows = [_recipe_row(name, recipe) for name, recipe in RECIPES.items()]
    return RECIPES_PAGE + markdown_table(RECIPE_COLUMNS, rows) + "\n"


def _recipe_row(name, recipe):
    source, reported = SOURCES[name]
    return (
        f"`{name}`",
        str(recipe.image_size),
        str(recipe.batch_size),
        recipe.optimizer,
        f"{recipe.learning_rate:g}",
        ", ".join(map(str, recipe.learning_rates)) or "-",
        " ".join([recipe.decay, *map(str, recipe.boundaries)]),
        str(recipe.warmup_steps),
        f"{recipe.epochs} epochs" if recipe.epochs else f"{recipe.steps} steps",
        *(str(value or "-") for value in (recipe.weight_decay, recipe.dropout, recipe.clip_norm)),
        source,
        reported or "-",
    )


PAGES = {"weight_maps.md": weight_maps, "catalogue.md": catalogue, "recipes.md": recipes}

if __name__ == "__main__":
    for name, page in PAGES.items():
        pathlib.Path(__file__).with_name(name).write_text(page())
