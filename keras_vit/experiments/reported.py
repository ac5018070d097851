"""Accuracies as they were reported, to stand beside what is measured."""

import dataclasses
import difflib
import pathlib

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.data.sources.paper import DATASETS
from keras_vit.models.describe import describe
from keras_vit.models.options import DROPOUT_OPTIONS, changed_options, match_variant

SOURCE = "Table 2 of the ViT paper (arXiv 2010.11929)"
# The mean over the 19 tasks, no dataset of its own.
VTAB = "vtab"
# What the paper fine-tunes on, where it evaluates on more than one dataset of the same images.
TRAINED_ON = {"imagenet2012_real": "imagenet2012"}
# What a run is free in; its rate is one of those that the paper tries.
_FREE = ("learning_rate", "learning_rates", "seed", "accumulation_steps")
# Options without effect in evaluation: dropout, and the GELU and epsilon in which ports of the same
# weights differ.
_IN_EVALUATION = (*DROPOUT_OPTIONS, "activation", "epsilon")


@dataclasses.dataclass(frozen=True)
class Reported:
    """An accuracy that was reported of a model on the test split of a dataset.

    Args:
        name: what `--compare` calls it.
        builder: name of the model's builder, as `builder_of` returns it.
        dataset: name of the dataset in `keras_vit.data.DATASETS`, or `"vtab"`.
        accuracy: top-1 in percent; on VTAB the mean over its tasks.
        std: standard deviation over runs, in percent, or `None`.
        source: where it is reported.
        starts_from: name of the published checkpoint that was fine-tuned; `None` if it is not
            published, or `name` is that of the checkpoint itself.
        recipe: name of the recipe that fine-tunes it as the source did; `None` likewise.
        image_size: side of the images that it was reported on, in pixels; `None` if not known.
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
        """A line with a measured accuracy, this one and their difference.

        Args:
            accuracy: measured, from 0 to 1.
            image_size: `(height, width)` that it was measured on, named if it is another.
            central_crop_from: smaller side that images were resized to before the middle was cut
                out, named if it is not `None`: the reported accuracies are of whole images.

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


_MODELS = (
    ("ViT_H14", "jft300m"),
    ("ViT_L16", "jft300m"),
    ("ViT_L16", "imagenet21k"),
    # BiT-L. The fifth model of the table, Noisy Student, is none of this package.
    ("BiT_R152x4", "jft300m"),
)
_IMAGENET, _CIFAR, _SMALL = "finetune_imagenet_512", "finetune_cifar", "finetune_pets_flowers"
# Mean and standard deviation of three runs, a column for each of the models above, behind the
# recipe that fine-tunes ViT-L/16.
_RESULTS = (
    ("imagenet2012", _IMAGENET, (88.55, 0.04), (87.76, 0.03), (85.30, 0.02), (87.54, 0.02)),
    ("imagenet2012_real", _IMAGENET, (90.72, 0.05), (90.54, 0.03), (88.62, 0.05), (90.54, None)),
    ("cifar10", _CIFAR, (99.50, 0.06), (99.42, 0.03), (99.15, 0.03), (99.37, 0.06)),
    ("cifar100", _CIFAR, (94.55, 0.04), (93.90, 0.05), (93.25, 0.05), (93.51, 0.08)),
    ("oxford_iiit_pet", _SMALL, (97.56, 0.03), (97.32, 0.11), (94.67, 0.15), (96.62, 0.23)),
    ("oxford_flowers102", _SMALL, (99.68, 0.02), (99.74, 0.00), (99.61, 0.02), (99.63, 0.03)),
    (VTAB, None, (77.63, 0.23), (76.28, 0.46), (72.72, 0.21), (76.29, 1.70)),
)


def _table_2():
    for dataset, recipe, *results in _RESULTS:
        for (builder, pretraining), result in zip(_MODELS, results, strict=True):
            row = Reported(f"{builder}/{pretraining}/{dataset}", builder, dataset, *result, SOURCE)
            size = 384 if builder == "ViT_L16" else None
            if dataset.startswith("imagenet2012"):
                size = {"ViT_L16": 512, "ViT_H14": 518}.get(builder)
            row = dataclasses.replace(row, image_size=size)
            # What was pre-trained on JFT-300M is not published.
            if pretraining == "imagenet21k" and recipe is not None:
                start = f"{builder}/{pretraining}"
                row = dataclasses.replace(row, starts_from=start, recipe=recipe)
            yield row


def _published_builder(row):
    """What `builder_of` returns for a published file."""
    if "vit_s16_i1k" not in row.url:
        return row.variant
    # arXiv 2205.01580.
    options = {"pooling": "gap", "position_embedding": "sincos2d"}
    return _with_options(row.variant, {"representation_size": row.representation_size, **options})


def _with_options(builder, options):
    """The name of a builder with options, such as `"ViT_S16(pooling='gap')"`."""
    listed = ", ".join(f"{name}={options[name]!r}" for name in sorted(options))
    return f"{builder}({listed})" if options else builder


TABLE_2 = tuple(_table_2())
# Of published files themselves, all on ImageNet.
OF_CHECKPOINTS = tuple(
    Reported(
        *(row.name, _published_builder(row), "imagenet2012", row.accuracy, None, row.source),
        image_size=row.image_size,
    )
    for row in CHECKPOINTS
    if row.accuracy is not None
)
COLUMNS = ("name", "measured", "reported", "difference")


def find_reported(name):
    """The row of that name, of Table 2 or of a published checkpoint.

    Args:
        name: such as `"ViT_L16/jft300m/cifar10"` or `"ViT_B16/augreg_imagenet2012_384"`.

    Returns:
        A `Reported`.

    Raises:
        ValueError: if there is none; the message names the nearest.

    Example:
    >>> print(find_reported("ViT_L16/jft300m/cifar10"))
    99.42 +- 0.03 %
    """
    rows = {row.name: row for row in TABLE_2 + OF_CHECKPOINTS}
    if name not in rows:
        nearest = difflib.get_close_matches(name, rows, cutoff=0)
        raise ValueError(
            "`--compare` must name what has a reported accuracy, such as "
            f"{', '.join(nearest)}. Received: {name!r}"
        )
    return rows[name]


def check_meant(row, model, data, num_classes):
    """Raises `ValueError` if a row cannot be of what is evaluated.

    Args:
        row: a `Reported`.
        model: a model of this package.
        data: name of the dataset, as in `keras_vit.data.load`; of one that is not of the table of
            datasets, such as a folder, whoever names the row knows what it holds.
        num_classes: how many classes the dataset has.
    """
    builder = builder_of(model)
    if builder != row.builder:
        raise ValueError(
            f"`--compare` must name a row of the model's architecture, {builder}. "
            f"Received: {row.name!r}, of {row.builder}"
        )
    if row.dataset == VTAB or (data in DATASETS and data != row.dataset):
        raise ValueError(
            f"`--compare` must name a row of the dataset, {data}. "
            f"Received: {row.name!r}, of {row.dataset}"
        )
    if num_classes != DATASETS[row.dataset].num_classes:
        raise ValueError(
            f"`--compare` must name a row of a dataset of {num_classes} classes. Received: "
            f"{row.name!r}, of {row.dataset} with {DATASETS[row.dataset].num_classes}"
        )


def reported_of_checkpoint(source, model, data):
    """The reported accuracy of a published file, where its name tells that it is one.

    Args:
        source: what the model was loaded from: a name of the catalogue or of AugReg, an address, or
            a path. A path counts if no other published file has that name (`ViT-B_16.npz` has
            three meanings), and the model is what the catalogue says of the file.
        model: the loaded model.
        data: name of the dataset, as in `keras_vit.data.load`.

    Returns:
        A `Reported`, or `None`.
    """
    source = str(source)
    rows = [row for row in CHECKPOINTS if source in (row.name, row.url, _augreg_name(row))]
    if not rows and "://" not in source:
        file = pathlib.PurePath(source).name
        rows = [row for row in CHECKPOINTS if row.url.endswith(f"/{file}")]
    if len(rows) != 1 or not _is_as_published(rows[0], model):
        return None
    found = [row for row in OF_CHECKPOINTS if row.name == rows[0].name and row.dataset == data]
    return found[0] if found else None


def reported_of_run(run, recipes, model, data):
    """The row of Table 2 that a training run reproduces, if it does.

    It has fine-tuned the checkpoint that the paper did, on the same images, with all settings of
    the recipe but the seed and the learning rate, which is among those that the paper tries.

    Args:
        run: what the `run.json` of the run says.
        recipes: dictionary from names to the settings of recipes, as a `run.json` has them.
        model: the run's model.
        data: name of the dataset, as in `keras_vit.data.load`.

    Returns:
        A `Reported`, or `None`.
    """
    for row in TABLE_2:
        if row.dataset != data or row.recipe is None or row.starts_from != run.get("model"):
            continue
        wanted, had = recipes[row.recipe], run.get("recipe", {})
        is_whole = run.get("split") in ("train", "train+validation") and not run.get("classes")
        is_whole = is_whole and not run.get("exclude") and run.get("fraction", 1) == 1
        is_same = all(had.get(key) == wanted[key] for key in wanted if key not in _FREE)
        if (
            is_whole
            and is_same
            and run.get("data") == TRAINED_ON.get(data, data)
            and had.get("learning_rate") in wanted["learning_rates"]
            and builder_of(model) == row.builder
            and tuple(model.input_shape[1:3]) == (wanted["image_size"],) * 2
        ):
            return row
    return None


def comparison_rows(measured):
    """Rows of a table of measured accuracies beside the reported ones.

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


def builder_of(model):
    """The name of the builder that makes such a model, or `None`.

    Options that change the outputs and are not the builder's defaults are part of it.

    Example:
    >>> builder_of(keras_vit.ViT_Ti16(image_size=32, pooling="map", qk_norm=True))
    "ViT_Ti16(pooling='map', qk_norm=True)"
    """
    try:
        options = describe(model)
    except ValueError:
        return None
    row = match_variant(options)
    if row is None:
        return None
    changed = changed_options(options, row)
    return _with_options(
        row.name, {name: changed[name][0] for name in changed if name not in _IN_EVALUATION}
    )


def _augreg_name(row):
    return row.url.rpartition("/")[2].removesuffix(".npz") if "/augreg/" in row.url else None


def _is_as_published(row, model):
    size = (row.image_size, row.image_size)
    return (
        builder_of(model) == _published_builder(row)
        and model.output_shape[-1] == row.num_classes
        and tuple(model.input_shape[1:3]) == size
    )
