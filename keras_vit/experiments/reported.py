"""Accuracies as they were reported, to compare measured ones with."""

import dataclasses
import difflib
import json
import pathlib
from typing import Any

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.data.sources.kinds import find_kind
from keras_vit.data.sources.paper import DATASETS
from keras_vit.experiments.paper_results import paper_results
from keras_vit.models.options import VitOptions, changed_options
from keras_vit.models.variants import match_variant
from keras_vit.training.recipes import RECIPES

PAPER = "of the ViT paper (arXiv 2010.11929)"
# The mean over the 19 tasks, which is not a dataset.
VTAB = "vtab"


@dataclasses.dataclass(frozen=True)
class Reported:
    """The accuracy that was reported for a model on the test split of a dataset.

    Args:
        name: name of the row, for `--compare`.
        builder: name of the model's builder, as `builder_of` returns it.
        dataset: name of the dataset in `keras_vit.data.DATASETS`, `"objectnet"` or `"vtab"`.
        accuracy: top-1 in percent; on VTAB the mean over its tasks.
        std: standard deviation over runs, in percent, or `None`.
        source: the publication.
        starts_from: name of the published checkpoint that was fine-tuned; `None` if it is not
            published, or if `name` is that of the checkpoint itself.
        recipe: name of the recipe that fine-tunes it as the source did; `None` likewise.
        image_size: side of the evaluated images, in pixels; `None` if not known.
    """

    name: str
    builder: str
    dataset: str
    accuracy: float
    std: float | None
    source: str
    starts_from: str | None = None
    recipe: str | None = None
    image_size: int | None = None

    def __str__(self):
        std = "" if self.std is None else f" +- {self.std:.2f}"
        return f"{self.accuracy:.2f}{std} %"

    def compare(self, accuracy, image_size=None, central_crop_from=None):
        """Return a line with a measured accuracy, the reported one and their difference.

        Args:
            accuracy: the measured accuracy, from 0 to 1.
            image_size: `(height, width)` of the evaluated images, named if it differs.
            central_crop_from: smaller side that images were resized to before the middle was cut
                out, named if it is not `None`: the reported accuracies are on whole images.

        Returns:
            A string.

        Example:
        >>> TABLE_2[1].compare(0.8776)
        'accuracy 87.76 %, reported 87.76 +- 0.03 % (ViT_L16/jft300m/imagenet2012,
        Table 2 of the ViT paper (arXiv 2010.11929)), difference +0.00'
        """
        others = ""
        if None not in (image_size, self.image_size) and set(image_size) != {self.image_size}:
            sizes = ["x".join(map(str, s)) for s in (image_size, (self.image_size,) * 2)]
            others += "; measured on images of {} pixels instead of {}".format(*sizes)
        if central_crop_from is not None:
            others += f"; measured on central crops from {central_crop_from} pixels"
        return (
            f"accuracy {100 * accuracy:.2f} %, reported {self} ({self.name}, {self.source}), "
            f"difference {_difference(accuracy, self)}{others}"
        )


# The dataset that the paper fine-tunes on, where it evaluates on several with the same images.
TRAINED_ON = {"imagenet2012_real": "imagenet2012"}
# The name of both the kind of dataset and the rows.
OBJECTNET = "objectnet"
# Settings that a run may choose; its learning rate must be one that the paper tries.
_FREE = ("learning_rate", "learning_rates", "seed", "accumulation_steps")
# Options without effect in evaluation: dropout, and the GELU and epsilon in which ports of the same
# weights differ.
_IN_EVALUATION = (*VitOptions.names("training"), "activation", "epsilon")
# What tables have besides accuracies.
_OTHERS = ("average", "exaflops", "tpu_days")


def reported_rows(name):
    """Return accuracies that the paper prints as `Reported` rows.

    Args:
        name: name of a table, such as `"Table 5"`. Other results than accuracies are left out, as
            are models that are not in this package.

    Returns:
        A tuple of `Reported`.

    Example:
    >>> row = reported_rows("Table 5")[12]
    >>> row.name, row.starts_from
    ('ViT_B16/imagenet2012/imagenet2012_real', None)
    """
    return tuple(
        Reported(
            *(row.name, row.builder, row.dataset, row.value, row.std, f"{row.source} {PAPER}"),
            starts_from=f"{row.builder}/{row.pretraining}" if row.recipe else None,
            recipe=row.recipe or None,
            image_size=int(row.image_size) if row.image_size else None,
        )
        for row in paper_results(name)
        if row.builder is not None and row.dataset not in _OTHERS
    )


def published_builder(row):
    """Return what `builder_of` returns for the model of a row of the catalog."""
    if "vit_s16_i1k" not in row.url:
        return row.variant
    # arXiv 2205.01580.
    options = {"pooling": "gap", "position_embedding": "sincos2d"}
    options["representation_size"] = row.representation_size
    return name_with_options(row.variant, options)


def name_with_options(builder, options):
    """Return the name of a builder with options, such as `"ViT_S16(pooling='gap')"`."""
    listed = ", ".join(f"{name}={options[name]!r}" for name in sorted(options))
    return f"{builder}({listed})" if options else builder


TABLE_2, TABLE_5 = reported_rows("Table 2"), reported_rows("Table 5")
# Accuracies on ImageNet of the published files themselves.
OF_CHECKPOINTS = tuple(
    Reported(
        *(row.name, published_builder(row), "imagenet2012", row.accuracy, None, row.source),
        image_size=row.image_size,
    )
    for row in CHECKPOINTS
    if row.accuracy is not None
)
OF_OBJECTNET = tuple(row for row in reported_rows("text") if row.name.endswith("/top-1"))
COLUMNS = ("name", "measured", "reported", "difference")


def find_reported(name: str) -> Reported:
    """Return the row of Table 2, of ObjectNet or of a published checkpoint, with a name.

    Args:
        name: such as `"ViT_L16/jft300m/cifar10"` or `"ViT_B16/augreg_imagenet2012_384"`.

    Returns:
        A `Reported`.

    Raises:
        ValueError: if there is none; the message names the most similar ones.

    Example:
    >>> print(find_reported("ViT_L16/jft300m/cifar10"))
    99.42 +- 0.03 %
    """
    rows = {row.name: row for row in TABLE_2 + OF_OBJECTNET + OF_CHECKPOINTS}
    if name not in rows:
        nearest = difflib.get_close_matches(name, rows, cutoff=0)
        raise ValueError(
            "`compare` must name a row that has a reported accuracy, such as "
            f"{', '.join(nearest)}. Received: {name!r}"
        )
    return rows[name]


def comparison_rows(measured: Any) -> list:
    """Return the rows of a table of measured and reported accuracies.

    Args:
        measured: dictionary from names of rows (see `find_reported`) to accuracies from 0 to 1.

    Yields:
        A tuple of strings for each, under `COLUMNS`; accuracies are in percent.

    Example:
    >>> next(comparison_rows({"ViT_L16/jft300m/cifar10": 0.99}))
    ('ViT_L16/jft300m/cifar10', '99.00 %', '99.42 +- 0.03 %', '-0.42')
    """
    for name, accuracy in measured.items():
        row = find_reported(name)
        yield name, f"{100 * accuracy:.2f} %", str(row), _difference(accuracy, row)


def _difference(accuracy, row):
    return f"{100 * accuracy - row.accuracy:+.2f}"


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
