"""Models compared by the compute of their training: the paper's scaling study, and others."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_vit.evaluation.costs import count_training_exaflops
from keras_vit.experiments.paper_results import paper_results
from keras_vit.models.variants import find_variant
from keras_vit.training.recipe import Recipe

# The images and classes of JFT-300M.
NUM_IMAGES, NUM_CLASSES = 303e6, 18_000


@dataclasses.dataclass(frozen=True)
class ScalingStudyRow:
    """One pre-training run on JFT-300M, with its reported top-1 in percent, and its compute."""

    name: str
    builder: str
    epochs: int
    imagenet: float
    exaflops: int


def _runs():
    """Return the rows of Table 6, in its order."""
    found = {}
    for result in paper_results("Table 6"):
        key = result.model, result.builder, int(result.setting.removesuffix(" epochs"))
        found.setdefault(key, {})[result.dataset] = result.value
    return tuple(
        ScalingStudyRow(*key, values["imagenet2012"], int(values["exaflops"]))
        for key, values in found.items()
    )


# Figure 5, section 4.4.
SCALING_STUDY = _runs()


def count_exaflops(row):
    """Return the compute of a row's pre-training, in exaFLOPs."""
    return count_training_exaflops(find_variant(row.builder), NUM_IMAGES, row.epochs, NUM_CLASSES)


def scaling(
    recipe: Recipe | str | None = None,
    data: str | None = None,
    models: Sequence[str] = ("ViT_Ti16",),
    **options: Any,
) -> list[dict]:
    """Compare models by the compute of their training.

    Without a recipe the models are those of the paper's study, with the accuracy on ImageNet and
    the compute that it reports. With a recipe they are `models`, trained by the recipe on `data`;
    `study("scaling", ...)` trains them, too.

    Args:
        recipe: a `Recipe`, or the name of one; `None` for the 18 runs of the paper.
        data: name of a dataset, as in `keras_vit.data.load`.
        models: names of variants.
        **options: `classes` and `data_dir` as in `keras_vit.data.load`.

    Returns:
        A list of dictionaries, one per model: `model` and `exaflops`. Runs of the paper have
        `builder`, `epochs`, `reported_exaflops` and `accuracy` as reported, too.

    Raises:
        ValueError: as `keras_vit.data.load`.

    Reference:
        Section 4.4, figure 5 and table 6 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> row = scaling()[1]
    >>> row["model"], row["accuracy"], row["reported_exaflops"], round(row["exaflops"])
    ('ViT-B/16', 0.8415, 224, 224)
    >>> rows = scaling("digits_pretrain", "digits", models=("ViT_Ti16", "ViT_S16"))
    >>> [(row["model"], f"{row['exaflops']:.1e}") for row in rows]
    [('ViT_Ti16', '8.3e-06'), ('ViT_S16', '3.3e-05')]
    """
    if recipe is None:
        return [
            {
                "model": row.name,
                "builder": row.builder,
                "epochs": row.epochs,
                "exaflops": count_exaflops(row),
                "reported_exaflops": row.exaflops,
                "accuracy": row.imagenet / 100,
            }
            for row in SCALING_STUDY
        ]
    # Keras is not needed for the paper's table.
    from keras_vit.data.loading import find_source
    from keras_vit.experiments.study_run import training_exaflops
    from keras_vit.training.recipes import find_recipe

    source, recipe = find_source(data, "train", **options), find_recipe(recipe)
    return [
        {"model": name, "exaflops": training_exaflops(recipe, name, source, recipe)}
        for name in models
    ]
