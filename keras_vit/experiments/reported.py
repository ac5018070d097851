"""Accuracies as they were reported, to compare measured ones with."""

import dataclasses
import difflib
from typing import Any

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.experiments.paper import accuracies, text

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


# The recipe that fine-tunes a model as the paper does, by dataset; VTAB has its own command.
_RECIPES = {
    "imagenet2012": "finetune",
    "imagenet2012_real": "finetune",
    "cifar10": "finetune_cifar",
    "cifar100": "finetune_cifar",
    "oxford_iiit_pet": "finetune_pets_flowers",
    "oxford_flowers102": "finetune_pets_flowers",
    VTAB: None,
}
# ViT-L/16's in Table 2.
_RECIPES_2 = dict.fromkeys(("imagenet2012", "imagenet2012_real"), "finetune_imagenet_512")


def reported_rows(results, recipes=_RECIPES, size_of=lambda result: None):
    """Return accuracies that the paper prints as `Reported` rows.

    Args:
        results: rows of `keras_vit.experiments.paper`. Other results than accuracies are left out,
            as are models that are not in this package.
        recipes: dictionary from datasets to names of recipes.
        size_of: function from a result to the side of the evaluated images, or `None`.

    Returns:
        A tuple of `Reported`.

    Example:
    >>> row = reported_rows(accuracies.TABLE_5)[12]
    >>> row.name, row.starts_from
    ('ViT_B16/imagenet2012/imagenet2012_real', None)
    """
    rows = []
    for result in results:
        if result.builder is None or result.dataset not in recipes:
            continue
        facts = result.name, result.builder, result.dataset, result.value, result.std
        # Models pre-trained on JFT-300M, or on ImageNet alone, are not published.
        recipe = recipes[result.dataset] if result.pretraining == "imagenet21k" else None
        start = f"{result.builder}/{result.pretraining}" if recipe is not None else None
        source, size = f"{result.source} {PAPER}", size_of(result)
        rows.append(Reported(*facts, source, start, recipe, size))
    return tuple(rows)


def _size_in_table_2(result):
    if result.dataset.startswith("imagenet2012"):
        return {"ViT_L16": 512, "ViT_H14": 518}.get(result.builder)
    return 384 if result.builder == "ViT_L16" else None


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


TABLE_2 = reported_rows(accuracies.TABLE_2, {**_RECIPES, **_RECIPES_2}, _size_in_table_2)
# Without the averaged weights and larger images of Table 2.
TABLE_5 = reported_rows(accuracies.TABLE_5, size_of=lambda result: 384)
# Accuracies on ImageNet of the published files themselves.
OF_CHECKPOINTS = tuple(
    Reported(
        *(row.name, published_builder(row), "imagenet2012", row.accuracy, None, row.source),
        image_size=row.image_size,
    )
    for row in CHECKPOINTS
    if row.accuracy is not None
)
OF_OBJECTNET = tuple(
    Reported(row.name, row.builder, row.dataset, row.value, row.std, f"{row.source} {PAPER}")
    for row in text.OBJECTNET
    if row.setting == "top-1"
)
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
