"""Published accuracies of models on datasets, to compare measured accuracies with."""

import dataclasses
import difflib

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.data.sources.kinds import find_kind
from keras_vit.data.sources.named_datasets import DATASETS
from keras_vit.experiments.paper_results import paper_results
from keras_vit.models.options import VitOptions, changed_options
from keras_vit.models.variants import match_variant

PAPER = "of the ViT paper (arXiv 2010.11929)"
# Name of VTAB in `Reported.dataset`, for the mean over its 19 tasks.
VTAB = "vtab"
# Name of ObjectNet in `Reported.dataset`, and of its kind of dataset (`objectnet:PATH`).
OBJECTNET = "objectnet"
# Options that `builder_of` ignores: dropout, which does nothing in evaluation; and the kind of GELU
# and epsilon, in which conversions of the same weights to other libraries differ.
_IGNORED_OPTIONS = (*VitOptions.names("training"), "activation", "epsilon")
# Values of `PaperResult.dataset` that are not datasets.
_NOT_DATASETS = ("average", "exaflops", "tpu_days")


@dataclasses.dataclass(frozen=True)
class Reported:
    """The published accuracy of a model on the test split of a dataset.

    Args:
        name: name of this row, as in `--compare`.
        builder: name of the model's builder, as `builder_of` returns it.
        dataset: name of the dataset in `keras_vit.data.DATASETS`, `"objectnet"` or `"vtab"`.
        accuracy: top-1 accuracy in percent; for `"vtab"` the mean over its tasks.
        std: standard deviation over runs, in percent, or `None`.
        source: the publication.
        image_size: side of the evaluated images, in pixels; `None` if not known.
    """

    name: str
    builder: str
    dataset: str
    accuracy: float
    std: float | None
    source: str
    image_size: int | None = None

    def __str__(self):
        std = "" if self.std is None else f" +- {self.std:.2f}"
        return f"{self.accuracy:.2f}{std} %"

    def compare(self, accuracy, image_size=None, central_crop_from=None):
        """Return a line of text with the measured and reported accuracy and their difference.

        Args:
            accuracy: the measured accuracy, from 0 to 1.
            image_size: `(height, width)` of the evaluated images, shown if it differs from the
                reported size.
            central_crop_from: smaller side to which images were resized before a central crop, or
                `None`. It is shown, because the reported accuracies are on whole images.

        Returns:
            A string.

        Example:
        >>> TABLE_2[1].compare(0.8776)
        'accuracy 87.76 %, reported 87.76 +- 0.03 % (ViT_L16/jft300m/imagenet2012,
        Table 2 of the ViT paper (arXiv 2010.11929)), difference +0.00'
        """
        remarks = ""
        if None not in (image_size, self.image_size) and set(image_size) != {self.image_size}:
            sizes = ["x".join(map(str, s)) for s in (image_size, (self.image_size,) * 2)]
            remarks += "; measured on images of {} pixels instead of {}".format(*sizes)
        if central_crop_from is not None:
            remarks += f"; measured on central crops from {central_crop_from} pixels"
        return (
            f"accuracy {100 * accuracy:.2f} %, reported {self} ({self.name}, {self.source}), "
            f"difference {100 * accuracy - self.accuracy:+.2f}{remarks}"
        )


def reported_rows(name):
    """Return the accuracies in a table of the paper as `Reported` rows.

    Results that are not accuracies, and models that are not in this package, are left out.

    Args:
        name: name of a table, such as `"Table 5"`.

    Returns:
        A tuple of `Reported`.

    Example:
    >>> reported_rows("Table 5")[12].name
    'ViT_B16/imagenet2012/imagenet2012_real'
    """
    return tuple(
        Reported(
            *(row.name, row.builder, row.dataset, row.value, row.std, f"{row.source} {PAPER}"),
            image_size=int(row.image_size) if row.image_size else None,
        )
        for row in paper_results(name)
        if row.builder is not None and row.dataset not in _NOT_DATASETS
    )


def published_builder(row):
    """Return the `Reported.builder` of a published checkpoint, a row of the catalog."""
    if "vit_s16_i1k" not in row.url:
        return row.variant
    # Better plain ViT baselines (arXiv 2205.01580).
    options = {"pooling": "gap", "position_embedding": "sincos2d"}
    options["representation_size"] = row.representation_size
    return name_with_options(row.variant, options)


def name_with_options(builder, options):
    """Return the name of a builder with options, such as `"ViT_S16(pooling='gap')"`."""
    listed = ", ".join(f"{name}={options[name]!r}" for name in sorted(options))
    return f"{builder}({listed})" if options else builder


TABLE_2, TABLE_5 = reported_rows("Table 2"), reported_rows("Table 5")
_WITH_ACCURACY = tuple(row for row in CHECKPOINTS if row.accuracy is not None)
# Accuracies on ImageNet of the published checkpoint files.
OF_CHECKPOINTS = tuple(
    Reported(
        *(row.name, published_builder(row), "imagenet2012", row.accuracy, None, row.source),
        image_size=row.image_size,
    )
    for row in _WITH_ACCURACY
)
OF_OBJECTNET = tuple(row for row in reported_rows("text") if row.name.endswith("/top-1"))


def find_reported(name: str) -> Reported:
    """Find a row by its name: of Table 2, of ObjectNet, or of a published checkpoint.

    Args:
        name: such as `"ViT_L16/jft300m/cifar10"` or `"ViT_B16/augreg_imagenet2012_384"`.

    Returns:
        A `Reported`.

    Raises:
        ValueError: if no row has the name; the message lists the most similar names.

    Example:
    >>> print(find_reported("ViT_L16/jft300m/cifar10"))
    99.42 +- 0.03 %
    """
    rows = {row.name: row for row in TABLE_2 + OF_OBJECTNET + OF_CHECKPOINTS}
    if name not in rows:
        nearest = difflib.get_close_matches(name, rows, cutoff=0)
        raise ValueError(
            "`compare` must be the name of a reported accuracy, such as "
            f"{', '.join(nearest)}. Received: {name!r}"
        )
    return rows[name]


def check_row_fits(row, model, data, num_classes):
    """Raise `ValueError` if a `Reported` row is for another model or dataset.

    A dataset without a name in `DATASETS`, such as a folder, is assumed to be the row's dataset;
    only its number of classes is compared.
    """
    kind, _ = find_kind(str(data))
    name = OBJECTNET if kind is not None and kind.name == OBJECTNET else data
    if name not in (*DATASETS, OBJECTNET):
        name = row.dataset
    # Labels of ObjectNet are numbers of ImageNet classes.
    dataset = DATASETS.get("imagenet2012" if row.dataset == OBJECTNET else row.dataset)
    for aspect, actual, of_row in (
        ("architecture", builder_of(model), row.builder),
        ("dataset", name, row.dataset),
        ("number of classes", num_classes, dataset and dataset.num_classes),
    ):
        if actual != of_row:
            raise ValueError(
                f"`compare` must name a row with the {aspect} {actual}. "
                f"Received: {row.name!r}, with the {aspect} {of_row}"
            )


def reported_of_checkpoint(source, model, data):
    """Return the `Reported` row of the published checkpoint that a model was loaded from.

    `source` is the name of the checkpoint in the catalog, or its address. Return `None` if the
    checkpoint has no row, or the model has another head or image size than the checkpoint.
    """
    for row, checkpoint in zip(OF_CHECKPOINTS, _WITH_ACCURACY, strict=True):
        if str(source) in (checkpoint.name, checkpoint.url) and row.dataset == data:
            actual = builder_of(model), model.output_shape[-1], *model.input_shape[1:3]
            size = checkpoint.image_size
            return row if actual == (row.builder, checkpoint.num_classes, size, size) else None
    return None


def builder_of(model):
    """Return the name of a model's builder, with options that differ from the builder's.

    Return `None` if no builder fits.
    """
    options = getattr(model, "options", None)
    row = options and match_variant(options)
    if row is None:
        return None
    changed = changed_options(options, row).items()
    options = {name: values[0] for name, values in changed if name not in _IGNORED_OPTIONS}
    return name_with_options(row.name, options)
