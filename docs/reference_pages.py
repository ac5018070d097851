"""The pages of docs/reference/: every public name; mkdocstrings shows their docstrings there.

Example: nox -s docs
"""

import importlib
import inspect
import pathlib

import keras_vit
from keras_vit.cli.command import markdown_table

ABOUT = {
    "models": "Build models, and change them. [Builders](builders.md) has one function per model.",
    "layers": "What models are composed of.",
    "checkpoints": "Read and write weights.",
    "data": "Datasets and images.",
    "training": "Recipes, and the losses, optimizers and callbacks that they use.",
    "evaluation": "Accuracy, few-shot accuracy, and the costs of models.",
    "inspection": "What a model has learned and attends to.",
    "experiments": "The experiments of the paper.",
    "serving": "Exports, predictions of many images, and a client of servers.",
}
PACKAGES = (
    *("keras_vit", "keras_vit.models", "keras_vit.layers", "keras_vit.checkpoints"),
    *("keras_vit.data", "keras_vit.training", "keras_vit.losses", "keras_vit.optimizers"),
    *("keras_vit.callbacks", "keras_vit.evaluation", "keras_vit.experiments", "keras_vit.serving"),
)
IN_TRAINING = ("losses", "optimizers", "callbacks")
# Tables, which have no `__module__`.
TABLES = {
    "keras_vit.data.AUGMENTATIONS": "keras_vit.data.images.preprocessing",
    "keras_vit.data.DATASETS": "keras_vit.data.sources.named_datasets",
    "keras_vit.models.VARIANTS": "keras_vit.models.variants",
    "keras_vit.training.RECIPES": "keras_vit.training.recipe",
}
BUILDERS = """# Builders

One function for each model of [the table](../models.md). All have the arguments of
[`keras_vit.build`](models.md): `num_classes`, `image_size`, `weights`, and the options of
`keras_vit.vision_transformer` or, for a BiT, `keras_vit.resnet`.

"""
ENTRY = """::: {home}.{label}
    options:
      heading: {name}
      toc_label: {label}
"""


def pages():
    """Return the pages by their paths below docs/."""
    entries = {section: [] for section in ABOUT}
    for name, home in sorted(public_names().items(), key=lambda item: item[0].lower()):
        package, _, label = name.rpartition(".")
        section = home.split(".")[1] if package == "keras_vit" else package.split(".")[1]
        section = "training" if section in IN_TRAINING else section
        section = "models" if label == "build" else section
        if section != "builders":
            entries[section].append(ENTRY.format(home=home, name=name, label=label))
    found = {
        f"reference/{name}.md": "\n".join([f"# {name.capitalize()}\n\n{about}\n", *entries[name]])
        for name, about in ABOUT.items()
    }
    return {"reference/builders.md": builders(), **found}


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


def builders():
    """Return the page of the builders."""
    module = importlib.import_module("keras_vit.builders")
    names = [row.name for row in keras_vit.list_variants()]
    rows = [(f"`keras_vit.{n}`", _first_line(getattr(module, n))) for n in names]
    table = markdown_table(("builder", ""), rows).replace("---:", "---")
    return f"{BUILDERS}{table}\n"


def _first_line(function):
    return inspect.getdoc(function).splitlines()[0]


if __name__ == "__main__":
    for path, text in pages().items():
        pathlib.Path(__file__).parent.joinpath(path).write_text(text, encoding="utf-8")
