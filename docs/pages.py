"""Generate pages of the site from the code; docs/hooks.py adds them to the site.

These pages are the reference, and the tables of checkpoints, weight maps, models of other projects
and recipes. The repository does not contain them.
"""

import importlib
import inspect

import keras_vit
from keras_vit.checkpoints import list_checkpoints
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.cli.command import markdown_table
from keras_vit.training.recipe import ROWS

WEIGHT_MAPS = """# Weight maps

Each row has an array of a file, and the variable of the model that gets its values. `{i}` is the
index of a Transformer block, counted from 0; `{n}` is the same index, counted from 1. `{s}` is the
stage of a residual unit, and `{u}` the number of the unit; `{u:02}` has two digits. One array may
hold several variables. The last column has the conversion when a file is read; the shapes in it are
those of the variables. The same rows read and write files.
"""
SUPPORT = """# Models of other projects

`keras_vit.from_checkpoint` recognizes the layout of a file, and `keras_vit.save_checkpoint(model,
path, format)` writes a file. With `format="huggingface"` or `format="timm"`, it writes the layout
that the model was read from, or else the first layout of the project that can describe the model.

The layouts of timm, transformers and torchvision are tested with the real packages on TensorFlow,
JAX and torch: models with random weights give the same outputs within 2e-5 in both directions, and
a file that is read and written again keeps its arrays. Files of open_clip are only read, and tested
with the real package too. Google's layouts are tested with outputs of the original code, and with
the names and shapes of the arrays in the published files. Of larger models in the last column, only
the image tower or the encoder is read. Files of `torch.save` with the arrays of a `.safetensors`
layout are read, too. [Weight maps](weight_maps.md) lists the arrays, and
[Published checkpoints](catalog.md) the files.

"""
SUPPORT_COLUMNS = ("`format`", "files", "read and written", "read only")
CATALOG = """# Published checkpoints

`keras_vit.from_checkpoint(name)` loads each of these files. Builders take the part of the name
after the slash as `weights=`. The models take images in [-1, 1] (`keras_vit.preprocess`).

- **Classes:** 21843 classes are those of ImageNet-21k, 1000 classes those of ImageNet-1k. An image
  tower without a head has 0. "(zero)" marks a file whose head is all zeros, for fine-tuning.
- **Top-1:** the accuracy that the source reports for this file on the validation images of
  ImageNet-1k. "(linear)" marks the accuracy of a linear classifier trained on the features.
- **File:** `hf://` addresses are repositories of the Hugging Face Hub, and need
  `pip install 'keras-vit-zoo[hub]'`. The repositories of DINOv3 are gated.
- **License:** the license of the weights, as the Hub shows it or, for torchvision, its README.

| name | size | classes | `pre_logits` | activation | top-1 | file | license | source |
| --- | ---: | ---: | ---: | --- | ---: | --- | --- | --- |
"""
RECIPES_PAGE = """# Recipes

`keras-vit train NAME` trains a model by one of these recipes. Every setting is a flag, see
`keras-vit train NAME --help`. In Python, `keras_vit.training.RECIPES[NAME]` is a recipe, and
`dataclasses.replace` changes its settings. The last column is the accuracy that the source reports,
on ImageNet unless the column names another dataset. We did not measure these accuracies.

SGD has a momentum of 0.9 and AdamW has optax's defaults; both compute the same updates as optax.
Weight decay applies to kernels only, and is multiplied by the learning rate as in the paper. The
learning rate rises linearly from 0 during the warm-up steps; the decay `staircase` divides it by 10
at each of the given steps. Recipes with `tiny_images` in their names follow BiT-HyperRule for
images smaller than 96 x 96 pixels.

"""
RECIPE_COLUMNS = (
    *("name", "size", "batch", "optimizer", "learning rate", "rates to try", "decay"),
    *("warm-up", "length", "weight decay", "dropout", "clipped at", "source", "reported"),
)
ABOUT = {
    "models": "Build and change models. [Builders](builders.md) has one function per model.",
    "layers": "The layers of the models.",
    "checkpoints": "Read and write weights.",
    "data": "Datasets and images.",
    "training": "Recipes, and the losses, optimizers and callbacks that they use.",
    "evaluation": "Accuracy, few-shot accuracy, and the compute and memory of models.",
    "inspection": "What a model has learned, and what it attends to.",
    "experiments": "The experiments of the paper.",
    "serving": "Exports, predictions of many images, and a client of servers.",
}
PACKAGES = (
    *("keras_vit", "keras_vit.models", "keras_vit.layers", "keras_vit.checkpoints"),
    *("keras_vit.data", "keras_vit.training", "keras_vit.losses", "keras_vit.optimizers"),
    *("keras_vit.callbacks", "keras_vit.evaluation", "keras_vit.experiments", "keras_vit.serving"),
)
IN_TRAINING = ("losses", "optimizers", "callbacks")
# The modules of tables, which have no `__module__`.
TABLES = {
    "keras_vit.data.AUGMENTATIONS": "keras_vit.data.images.preprocessing",
    "keras_vit.data.DATASETS": "keras_vit.data.sources.named_datasets",
    "keras_vit.models.VARIANTS": "keras_vit.models.variants",
    "keras_vit.training.RECIPES": "keras_vit.training.recipe",
}
BUILDERS = """# Builders

Each model of [the table](../models.md) has a function that builds it. The arguments are those of
[`keras_vit.build`](models.md): `num_classes`, `image_size`, `weights`, and the options of
`keras_vit.vision_transformer` or, for a BiT, of `keras_vit.resnet`.

"""
ENTRY = """::: {home}.{label}
    options:
      heading: {name}
      toc_label: {label}
"""


def pages():
    """Return the text of each generated page by its path below docs/."""
    return {
        "weight_maps.md": weight_maps(),
        "support.md": support(),
        "catalog.md": catalog(),
        "recipes.md": recipes(),
        "reference/builders.md": builders(),
        **reference(),
    }


def weight_maps():
    """Return the page of the weight maps."""
    sections = [
        f"## {format.title}\n\n{_weight_map(format.rows)}\n"
        for format in FORMATS.values()
        if format.title
    ]
    return "\n".join([WEIGHT_MAPS, *sections])


def _weight_map(rows):
    lines = ["| array in the file | variable of the model | layout |", "| --- | --- | --- |"]
    for row in rows:
        targets = ", ".join(f"`{target}`" for target in row.targets)
        lines.append(f"| `{row.source}` | {targets} | {TRANSFORMS[row.transform].meaning} |")
    return "\n".join(lines)


def support():
    """Return the page of the models whose files are read and written."""
    rows = [
        (
            f"`{row.name}`",
            f"`{row.suffix or row.file_name or '.safetensors'}`",
            ", ".join(row.models),
            ", ".join(row.read_only_models),
        )
        for row in FORMATS.values()
        if row.models or row.read_only_models
    ]
    table = markdown_table(SUPPORT_COLUMNS, rows).replace("---:", "---")
    return f"{SUPPORT}{table}\n"


def catalog():
    """Return the page of the published checkpoints."""
    return CATALOG + "".join(_catalog_row(row) for row in list_checkpoints())


def _catalog_row(row):
    names = {"gelu_tanh": "GELU, tanh", "gelu": "GELU, erf", "quick_gelu": "quick GELU"}
    activation = names.get(row.activation, "SwiGLU" if row.activation == "silu" else "ReLU")
    accuracy = f"{row.accuracy:.2f}" if row.accuracy else "-"
    if row.linear_accuracy:
        accuracy = f"{row.linear_accuracy:.1f} (linear)"
    cells = (
        f"`{row.name}`",
        row.image_size,
        f"{row.num_classes}{' (zero)' if row.zero_head else ''}",
        row.representation_size or "-",
        activation,
        accuracy,
        f"`{row.url}`",
        row.license or "-",
        row.source,
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def recipes():
    """Return the page of the recipes."""
    rows = [_recipe_row(row) for row in ROWS.values()]
    return RECIPES_PAGE + markdown_table(RECIPE_COLUMNS, rows) + "\n"


def _recipe_row(row):
    recipe = row.recipe
    return (
        f"`{row.name}`",
        str(recipe.image_size),
        str(recipe.batch_size),
        recipe.optimizer,
        f"{recipe.learning_rate:g}",
        ", ".join(map(str, recipe.learning_rates)) or "-",
        " ".join([recipe.decay, *map(str, recipe.boundaries)]),
        str(recipe.warmup_steps),
        f"{recipe.epochs} epochs" if recipe.epochs else f"{recipe.steps} steps",
        *(str(value or "-") for value in (recipe.weight_decay, recipe.dropout, recipe.clip_norm)),
        row.source,
        row.reported or "-",
    )


def builders():
    """Return the page of the builders."""
    module = importlib.import_module("keras_vit.builders")
    names = [row.name for row in keras_vit.list_variants()]
    rows = [(f"`keras_vit.{n}`", _first_line(getattr(module, n))) for n in names]
    table = markdown_table(("builder", ""), rows).replace("---:", "---")
    return f"{BUILDERS}{table}\n"


def _first_line(function):
    return inspect.getdoc(function).splitlines()[0]


def reference():
    """Return the pages of the public names, whose docstrings mkdocstrings shows."""
    entries = {section: [] for section in ABOUT}
    for name, home in sorted(public_names().items(), key=lambda item: item[0].lower()):
        package, _, label = name.rpartition(".")
        section = home.split(".")[1] if package == "keras_vit" else package.split(".")[1]
        section = "training" if section in IN_TRAINING else section
        section = "models" if label == "build" else section
        if section != "builders":
            entries[section].append(ENTRY.format(home=home, name=name, label=label))
    return {
        f"reference/{name}.md": "\n".join([f"# {name.capitalize()}\n\n{about}\n", *entries[name]])
        for name, about in ABOUT.items()
    }


def public_names():
    """Return the public names, and the modules that define them."""
    found, seen = {}, set()
    for path in PACKAGES:
        package = keras_vit if path == "keras_vit" else getattr(keras_vit, path.split(".")[1])
        for label in getattr(package, "__all__", None) or _defined(package):
            value, name = getattr(package, label), f"{path}.{label}"
            if not inspect.ismodule(value) and id(value) not in seen:
                seen.add(id(value))
                found[name] = TABLES.get(name) or value.__module__
    return found


def _defined(module):
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
