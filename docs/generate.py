"""Writes the pages of docs/ that are tables of the package: weight_maps.md and catalogue.md.

Example: python docs/generate.py
"""

import pathlib

from keras_vit.checkpoints import list_checkpoints
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.keras_hub import KERAS_HUB
from keras_vit.checkpoints.weight_map import as_markdown

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

Written by `python docs/generate.py` from `keras_vit/checkpoints/published.py`.

| name | size | classes | `pre_logits` | GELU | top-1 | file | source |
| --- | ---: | ---: | ---: | --- | ---: | --- | --- |
"""


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


PAGES = {"weight_maps.md": weight_maps, "catalogue.md": catalogue}

if __name__ == "__main__":
    for name, page in PAGES.items():
        pathlib.Path(__file__).with_name(name).write_text(page())
