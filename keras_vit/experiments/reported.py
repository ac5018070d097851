"""Accuracies as they were reported, to compare measured ones with."""

import dataclasses
import difflib

from keras_vit.checkpoints.catalog import CHECKPOINTS

SOURCE = "Table 2 of the ViT paper (arXiv 2010.11929)"
# The mean over the 19 tasks, which is not a dataset.
VTAB = "vtab"


@dataclasses.dataclass(frozen=True)
class Reported:
    """The accuracy that was reported for a model on the test split of a dataset.

    Args:
        name: name of the row, for `--compare`.
        builder: name of the model's builder, as `builder_of` returns it.
        dataset: name of the dataset in `keras_vit.data.DATASETS`, or `"vtab"`.
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


_MODELS = (
    ("ViT_H14", "jft300m"),
    ("ViT_L16", "jft300m"),
    ("ViT_L16", "imagenet21k"),
    # BiT-L. The fifth model of the table, Noisy Student, is not in this package.
    ("BiT_R152x4", "jft300m"),
)
_IMAGENET, _CIFAR, _SMALL = "finetune_imagenet_512", "finetune_cifar", "finetune_pets_flowers"
# Dataset, recipe that fine-tunes ViT-L/16, and for each of the models above the mean and standard
# deviation of three runs.
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
            name = f"{builder}/{pretraining}/{dataset}"
            size = 384 if builder == "ViT_L16" else None
            if dataset.startswith("imagenet2012"):
                size = {"ViT_L16": 512, "ViT_H14": 518}.get(builder)
            # The models pre-trained on JFT-300M are not published.
            is_published = pretraining == "imagenet21k" and recipe is not None
            start = (f"{builder}/{pretraining}", recipe) if is_published else (None, None)
            yield Reported(name, builder, dataset, *result, SOURCE, *start, size)


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


TABLE_2 = tuple(_table_2())
# Accuracies on ImageNet of the published files themselves.
OF_CHECKPOINTS = tuple(
    Reported(
        *(row.name, published_builder(row), "imagenet2012", row.accuracy, None, row.source),
        image_size=row.image_size,
    )
    for row in CHECKPOINTS
    if row.accuracy is not None
)
COLUMNS = ("name", "measured", "reported", "difference")


def find_reported(name):
    """Return the row of Table 2, or of a published checkpoint, with a name.

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
    rows = {row.name: row for row in TABLE_2 + OF_CHECKPOINTS}
    if name not in rows:
        nearest = difflib.get_close_matches(name, rows, cutoff=0)
        raise ValueError(
            "`compare` must name a row that has a reported accuracy, such as "
            f"{', '.join(nearest)}. Received: {name!r}"
        )
    return rows[name]


def comparison_rows(measured):
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
