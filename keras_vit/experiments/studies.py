"""Studies: the same training with one thing changed, over several seeds."""

import dataclasses
import functools
import importlib.util
import pathlib

from keras_vit.core.arguments import check_choice
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.evaluation.fewshot import check_fewshot_settings
from keras_vit.experiments.digests import data_digests
from keras_vit.experiments.study_runs import check_data, measure_best, measure_last
from keras_vit.experiments.study_table import by_setting, run_study
from keras_vit.inspection.figures.studies import draw_data_sizes, draw_scaling, draw_study
from keras_vit.models.variants import Variant, find_variant
from keras_vit.training.recipes import find_recipe
from keras_vit.training.recipes.recipe import Recipe

FIGURE = "study.png"
DATA_SIZE = "data-size"
TITLES = {
    "scaling": "Accuracy against the compute of the training",
    "positions": "Position embeddings",
    "poolings": "Pooling of the tokens",
    DATA_SIZE: "Accuracy against the number of training images",
}
# The field of the recipe that a study changes, and its values by their names in the table:
# appendices D.4 and D.3 of the ViT paper.
CHANGES = {
    "positions": (
        "position_embedding",
        {
            "none": "none",
            "1-D, learned": "learned",
            "2-D, learned": "learned2d",
            "2-D, sines and cosines": "sincos2d",
            "relative": "relative",
        },
    ),
    "poolings": ("pooling", {"class token": "token", "mean of patches": "gap", "attention": "map"}),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One line of a study: a variant, the recipe's fields that differ, the share of the images."""

    name: str
    model: str
    changes: dict = dataclasses.field(default_factory=dict)
    fraction: float = 1.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The arguments of `study`, with the defaults filled in."""

    name: str
    recipe: Recipe
    data: str
    workdir: pathlib.Path
    models: tuple[str, ...] = ("ViT_Ti16",)
    seeds: int = 3
    classes: tuple[str, ...] | None = None
    data_dir: pathlib.Path | None = None
    fractions: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    fewshot_data: str | None = None
    fewshot_classes: tuple[str, ...] | None = None
    shots: int = 5

    @property
    def data_options(self):
        """The options that the dataset is loaded with."""
        return {"classes": self.classes, "data_dir": self.data_dir}

    @property
    def settings(self):
        """The lines of the study, a list of `Setting`."""
        if self.name == "scaling":
            return [Setting(model, model) for model in self.models]
        if self.name == DATA_SIZE:
            kinds = [(f"{100 * share:.12g} %", {}, share) for share in self.fractions]
        else:
            field, values = CHANGES[self.name]
            kinds = [(name, {field: value}) for name, value in values.items()]
        return [
            Setting(f"{model}, {name}", model, *changed)
            for model in self.models
            for name, *changed in kinds
        ]

    def facts(self):
        """Return what all rows have in common; another seed is another row."""
        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        facts = {"study": self.name, "data": self.data, "classes": self.classes, **recipe}
        if self.name == DATA_SIZE:
            names = ("fewshot_data", "fewshot_classes", "shots")
            facts.update({name: getattr(self, name) for name in names})
        facts |= data_digests(self.data, ("train", "validation", "test"), self.classes)
        if self.fewshot_data is None:
            return facts
        others = self.fewshot_data, ("train", "test"), self.fewshot_classes
        return facts | data_digests(*others, prefix="fewshot_")

    def check(self):
        """Raise `ValueError` for what would otherwise be found after the first runs."""
        if self.seeds < 1 or not self.recipe.is_of_classes:
            raise ValueError(
                "`seeds` must be positive, and the recipe one that trains on classes. "
                f"Received: seeds={self.seeds}, loss={self.recipe.loss!r}"
            )
        is_share = all(0 < fraction <= 1 for fraction in self.fractions)
        names = {setting.name for setting in self.settings}
        if not names or not is_share or len(names) < len(self.settings):
            raise ValueError(
                "`models` and `fractions` must be there, each once, and the fractions above 0 and "
                f"up to 1. Received: models={self.models}, fractions={self.fractions}"
            )
        if self.fewshot_classes and not self.fewshot_data:
            raise ValueError(
                "`fewshot_classes` needs `fewshot_data`. "
                f"Received: fewshot_classes={self.fewshot_classes}, fewshot_data=None"
            )
        check_fewshot_settings((self.shots,), (0,), "least-squares", None)
        for setting in self.settings:
            variant = find_variant(setting.model)
            if setting.changes and not isinstance(variant, Variant):
                raise ValueError(
                    f"`models` must have patches for the study {self.name!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            dataclasses.replace(self.recipe, **setting.changes)
        check_data(self)


def study(name, recipe, data, workdir, models=("ViT_Ti16",), seeds=3, **options):
    """Train by the same recipe with one thing changed, over several seeds.

    `"scaling"` compares models, `"data-size"` shares of the training images, each trained on for as
    many steps as all of them, `"positions"` kinds of position embeddings, and `"poolings"` the
    class token with means and attention.

    The directory gets `study.csv` with a row per run, the figure `study.png` if matplotlib is
    installed, and the runs themselves. The same call resumes a study that was stopped, and more
    seeds or models may be added to it.

    Args:
        name: `"scaling"`, `"data-size"`, `"positions"` or `"poolings"`.
        recipe: a `Recipe`, or the name of one.
        data: name of a dataset, as in `keras_vit.data.load`. Models train on the train split; their
            accuracy is that on the test split.
        workdir: path of a new directory, or of one that the same study was begun in.
        models: names of variants.
        seeds: number of runs of each setting; the recipe's seed is that of the first.
        **options: `classes` and `data_dir` as in `keras_vit.data.load`. For `"data-size"` alone:
            `fractions`, shares of the training images, by default `(0.03, 0.1, 0.3, 1.0)`;
            `fewshot_data`, the dataset of the few-shot accuracy, by default the one trained on,
            whose images and labels the model has seen; `fewshot_classes`, the classes of that
            dataset to keep; and `shots`, its labelled images per class, by default 5.

    Returns:
        A list of dictionaries, one per run: `setting`, `seed`, `exaflops`, `accuracy`, and for
        `"data-size"` `images` and `fewshot`. Accuracies are from 0 to 1.

    Raises:
        ValueError: if an argument is out of range, or the directory has another study.

    Reference:
        Sections 4.3 and 4.4 and appendices D.3 and D.4 of the ViT paper (arXiv 2010.11929).

    Example:
        `docs/studies.md` has one on the digits, whose training takes longer than an example here.
    """
    plan = make_plan(name, recipe, data, workdir, models=models, seeds=seeds, **options)
    plan.check()
    measure = functools.partial(measure_best if name == DATA_SIZE else measure_last, plan)
    seeds = range(plan.recipe.seed, plan.recipe.seed + plan.seeds)
    rows = run_study(plan.settings, seeds, measure, plan.workdir, plan.facts())
    if importlib.util.find_spec("matplotlib"):
        _draw(plan, rows)
    return rows


def make_plan(name, recipe, data, workdir, **options):
    """Return the `Plan` of a study; options that are `None` have their defaults."""
    check_choice("name", name, tuple(TITLES))
    options = {option: value for option, value in options.items() if value is not None}
    for option in ("fractions", "fewshot_data", "fewshot_classes", "shots"):
        if option in options and name != DATA_SIZE:
            raise ValueError(
                f"`{option}` is for the study 'data-size' alone. Received: the study {name!r}"
            )
    if "fewshot_data" in options:
        options["fewshot_data"] = absolute_name(options["fewshot_data"])
    # A study may be resumed from another working directory.
    workdir = pathlib.Path(workdir).expanduser().resolve()
    return Plan(name, find_recipe(recipe), absolute_name(data), workdir, **options)


def _draw(plan, rows):
    title, accuracies = TITLES[plan.name], by_setting(rows, "accuracy")
    picture = plan.workdir / FIGURE
    if plan.name == "scaling":
        exaflops = {name: found[0] for name, found in by_setting(rows, "exaflops").items()}
        draw_scaling(exaflops, accuracies, title, picture)
    elif plan.name == DATA_SIZE:
        models = {setting.name: setting.model for setting in plan.settings}
        rows = [{**row, "model": models[row["setting"]]} for row in rows]
        panels = {f"{plan.shots}-shot accuracy (%)": "fewshot", "Test accuracy (%)": "accuracy"}
        draw_data_sizes(rows, panels, title, picture)
    else:
        draw_study(accuracies, title, picture)
