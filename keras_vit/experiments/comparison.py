"""Find the reported accuracy that a model's measured one is compared with."""

import dataclasses
import json
import pathlib

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.data.sources.kinds import find_kind
from keras_vit.data.sources.paper import DATASETS
from keras_vit.experiments.reported import (
    OF_CHECKPOINTS,
    TABLE_2,
    VTAB,
    name_with_options,
    published_builder,
)
from keras_vit.models.options import VitOptions, changed_options
from keras_vit.models.variants import match_variant
from keras_vit.training.recipes import RECIPES

# The dataset that the paper fine-tunes on, where it evaluates on several with the same images.
TRAINED_ON = {"imagenet2012_real": "imagenet2012"}
# The name of both the kind of dataset and the rows.
OBJECTNET = "objectnet"
# Settings that a run may choose; its learning rate must be one that the paper tries.
_FREE = ("learning_rate", "learning_rates", "seed", "accumulation_steps")
# Options without effect in evaluation: dropout, and the GELU and epsilon in which ports of the same
# weights differ.
_IN_EVALUATION = (*VitOptions.names("training"), "activation", "epsilon")


def check_meant(row, model, data, num_classes):
    """Raise `ValueError` if a `Reported` accuracy cannot be for a model and dataset.

    A dataset outside the table of datasets, such as a folder, may hold the images of any row.
    """
    builder = builder_of(model)
    if builder != row.builder:
        _refuse(row, f"the model's architecture, {builder}", row.builder)
    kind, _ = find_kind(str(data))
    name = OBJECTNET if kind is not None and kind.name == OBJECTNET else data
    if row.dataset == VTAB or (name in (*DATASETS, OBJECTNET) and name != row.dataset):
        _refuse(row, f"the dataset, {data}", row.dataset)
    # ObjectNet has the labels of ImageNet.
    expected = DATASETS["imagenet2012" if row.dataset == OBJECTNET else row.dataset].num_classes
    if num_classes != expected:
        _refuse(row, f"a dataset of {num_classes} classes", f"{row.dataset} with {expected}")


def _refuse(row, rule, received):
    raise ValueError(f"`compare` must name a row of {rule}. Received: {row.name!r}, of {received}")


def reported_of_checkpoint(source, model, data):
    """Return the `Reported` accuracy of the published file that a model was loaded from, or `None`.

    `source` is a name of the catalog or of AugReg, an address, or a path. A path counts if no other
    published file has that name (`ViT-B_16.npz` has three meanings), and the model is as the
    catalog describes it.
    """
    source = str(source)
    rows = [row for row in CHECKPOINTS if source in (row.name, row.url, _augreg_name(row))]
    if not rows and "://" not in source:
        file = pathlib.PurePath(source).name
        rows = [row for row in CHECKPOINTS if row.url.endswith(f"/{file}")]
    if len(rows) != 1 or not _is_as_published(rows[0], model):
        return None
    found = (row for row in OF_CHECKPOINTS if row.name == rows[0].name and row.dataset == data)
    return next(found, None)


def reported_of_run(run, model, data, rows=TABLE_2):
    """Return the row that a training run (its `run.json`) reproduces, by default of Table 2.

    It has fine-tuned the same checkpoint as the paper, on the same images, with all settings of the
    recipe but the seed and the learning rate, which is one that the paper tries. `None` if there is
    no such row.
    """
    had = run.get("recipe", {})
    is_whole = run.get("split") in ("train", "train+validation") and not run.get("classes")
    if not is_whole or run.get("exclude") or run.get("fraction", 1) != 1:
        return None
    for row in rows:
        if row.dataset != data or row.recipe is None or row.starts_from != run.get("model"):
            continue
        # Through JSON, which has no tuples.
        wanted = json.loads(json.dumps(dataclasses.asdict(RECIPES[row.recipe])))
        if (
            all(had.get(key) == wanted[key] for key in wanted if key not in _FREE)
            and run.get("data") == TRAINED_ON.get(data, data)
            and had.get("learning_rate") in wanted["learning_rates"]
            and builder_of(model) == row.builder
            and tuple(model.input_shape[1:3]) == (wanted["image_size"],) * 2
        ):
            return row
    return None


def builder_of(model):
    """Return the name of a model's builder, with the options that change its outputs, or `None`."""
    options = getattr(model, "options", None)
    row = options and match_variant(options)
    if row is None:
        return None
    changed = changed_options(options, row).items()
    options = {name: values[0] for name, values in changed if name not in _IN_EVALUATION}
    return name_with_options(row.name, options)


def _augreg_name(row):
    return row.url.rpartition("/")[2].removesuffix(".npz") if "/augreg/" in row.url else None


def _is_as_published(row, model):
    return (
        builder_of(model) == published_builder(row)
        and model.output_shape[-1] == row.num_classes
        and tuple(model.input_shape[1:3]) == (row.image_size,) * 2
    )
