"""Run a study: train each setting with each seed, measure the models, print and draw them."""

import dataclasses
import importlib.util
import itertools
import logging
import os
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

from keras_vit.checkpoints.runs import LAST_MODEL
from keras_vit.checkpoints.trained import load_trained
from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.loading import find_source, load
from keras_vit.data.sources.kinds import absolute_name, find_kind
from keras_vit.evaluation.classification import evaluate
from keras_vit.evaluation.costs import count_training_exaflops
from keras_vit.evaluation.fewshot import evaluate_fewshot
from keras_vit.experiments.grid import by_setting, grid
from keras_vit.experiments.studies import STUDIES, settings_of
from keras_vit.experiments.sweep import choose
from keras_vit.inspection.figures.charts import (
    draw_data_sizes,
    draw_scaling,
    draw_study,
    short_names,
)
from keras_vit.models.options import is_resnet
from keras_vit.models.variants import find_variant
from keras_vit.training import job
from keras_vit.training.recipe import Recipe
from keras_vit.training.recipes import find_recipe
from keras_vit.training.starting_model import with_settings

FIGURE = "study.png"
# Options that are ignored without another one.
_NEEDED = {
    "finetune": "finetune_data",
    "finetune_data": "finetune",
    "finetune_classes": "finetune_data",
    "finetune_fraction": "finetune_data",
    "fewshot_classes": "fewshot_data",
    "shots": "fewshot_data",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The arguments of `study`, with the defaults filled in."""

    name: str
    recipe: Recipe
    data: str | None
    workdir: pathlib.Path
    models: Sequence[str]
    seeds: int
    values: tuple
    classes: Sequence[str] | None = None
    data_dir: os.PathLike | None = None
    tune: dict = dataclasses.field(default_factory=dict)
    fewshot_data: str | None = None
    fewshot_classes: Sequence[str] | None = None
    shots: int | None = None
    finetune: Recipe | None = None
    finetune_data: str | None = None
    finetune_classes: Sequence[str] | None = None
    finetune_fraction: float | None = None

    @property
    def settings(self):
        """The lines of the study, a list of `Setting`."""
        return settings_of(STUDIES[self.name], self.recipe, self.models, self.values)

    def images(self, setting):
        """Return the dataset that a setting is trained on, and the options it is loaded with."""
        return setting.data or self.data, {"classes": self.classes, "data_dir": self.data_dir}

    @property
    def target(self):
        """The dataset of the fine-tuning, and the options it is loaded with."""
        options = {"classes": self.finetune_classes, "data_dir": self.data_dir}
        return self.finetune_data, options

    def facts(self):
        """Return what all rows have in common; another seed or setting is another row."""
        facts = {
            name: getattr(self, name)
            for name in ("data", "fewshot_data", "shots", "finetune_data", "finetune_fraction")
        }
        for name in ("classes", "fewshot_classes", "finetune_classes"):
            # A dataset numbers the classes to keep in its own order.
            facts[name] = sorted(getattr(self, name) or ())
        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        facts |= {"study": self.name, "recipe": recipe, "tune": list(self.tune.items())}
        if self.finetune:
            facts["finetune"] = dataclasses.asdict(self.finetune)
        splits = "train", "validation", "test"
        for setting in self.settings:
            facts |= data_digests(self.images(setting)[0], splits, self.classes)
        if self.fewshot_data:
            facts |= data_digests(self.fewshot_data, splits[::2], self.fewshot_classes, "fewshot ")
        if self.finetune:
            facts |= data_digests(self.finetune_data, splits, self.finetune_classes, "finetune ")
        return facts

    def check(self):
        """Raise `ValueError` for what would otherwise be found after the first runs."""
        settings, recipes = self.settings, [r for r in (self.recipe, self.finetune) if r]
        check_integer("seeds", self.seeds, 1)
        if self.shots is not None:
            check_integer("shots", self.shots, 1)
        if not settings:
            raise ValueError(
                f"The study {self.name!r} needs `models` and `values`. "
                f"Received: models={self.models}, values={self.values}"
            )
        if not all(recipe.is_of_classes for recipe in recipes):
            raise ValueError(
                "`recipe` and `finetune` must be recipes that train on classes. "
                f"Received: loss={[recipe.loss for recipe in recipes]}"
            )
        for option, needed in _NEEDED.items():
            if getattr(self, option) is not None and getattr(self, needed) is None:
                raise ValueError(
                    f"`{option}` needs `{needed}`. Received: {option}={getattr(self, option)!r}"
                )
        if self.name in ("datasets", "pretraining") and self.finetune is None:
            raise ValueError(
                f"The study {self.name!r} needs `finetune` and `finetune_data`. Received: neither"
            )
        for setting in settings:
            variant = find_variant(setting.model)
            if STUDIES[self.name].needs_patches and is_resnet(variant):
                raise ValueError(
                    f"`models` must have patches for the study {self.name!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            # Patches that do not tile the images, values that a recipe refuses, missing data.
            for recipe in recipes:
                _ = variant.replace(image_size=recipe.image_size).grid
            recipe = dataclasses.replace(self.recipe, **setting.changes)
            for field, values in self.tune.items() if recipe.is_of_classes else ():
                for value in values:
                    dataclasses.replace(recipe, **{field: value})
        for data, fraction in {(setting.data, setting.fraction) for setting in settings}:
            data, options = self.images(dataclasses.replace(settings[0], data=data))
            job.load_training_data(self.recipe, data, fraction=fraction, **options)
            load(data, "test", 1, 1, **options)
        if self.fewshot_data:
            for split in ("train", "test"):
                find_source(self.fewshot_data, split, self.fewshot_classes, self.data_dir)
        if self.finetune:
            data, options = self.target
            fraction = self.finetune_fraction or 1.0
            job.load_training_data(self.finetune, data, fraction=fraction, **options)
            load(data, "test", 1, 1, **options)


def make_plan(name, recipe, data, workdir, models=("ViT_Ti16",), seeds=3, values=None, **options):
    """Return the `Plan` of a study; options that are `None` have their defaults."""
    check_choice("name", name, tuple(STUDIES))
    kind = STUDIES[name]
    values = kind.values if values is None else tuple(map(kind.parse, values))
    options = {option: value for option, value in options.items() if value is not None}
    if "finetune" in options:
        options["finetune"] = find_recipe(options["finetune"])
    for option in {"fewshot_data", "finetune_data"} & {*options}:
        options[option] = absolute_name(options[option])
    if name == "datasets":
        data = next(iter(values), None)
    if data is None:
        needed = "values" if name == "datasets" else "data"
        raise ValueError(f"`{needed}` must be given for the study {name!r}. Received: None")
    data = absolute_name(data)
    if name == "data-size" and "fewshot_data" not in options:
        own = {"fewshot_data": data, "fewshot_classes": options.get("classes")}
        options = {**own, **options}
    if "fewshot_data" in options:
        options.setdefault("shots", 5)
    # A study may be resumed from another working directory.
    workdir = pathlib.Path(workdir).expanduser().resolve()
    return Plan(name, find_recipe(recipe), data, workdir, models, seeds, values, **options)


def data_digests(name, splits, classes=None, prefix=""):
    """Return a dictionary of digests of splits; empty for TensorFlow Datasets."""
    kind, _ = find_kind(name)
    # They have versions, and may be too large to be read.
    if kind is None or kind.name == "tfds":
        return {}
    return {
        f"{prefix}{name} {split} digest": find_source(name, split, classes).digest()
        for split in splits
    }


def study(
    name: str,
    recipe: Recipe | str,
    data: str | None,
    workdir: str | os.PathLike,
    models: Sequence[str] = ("ViT_Ti16",),
    seeds: int = 3,
    **options: Any,
) -> list[dict]:
    """Train by the same recipe with one thing changed, over several seeds.

    `"scaling"` compares models, `"data-size"` shares of the training images, each trained on for as
    many steps as all of them, `"datasets"` pre-training sets, `"pretraining"` models that have
    learned classes, masked patches or nothing before the same fine-tuning, `"optimizers"` Adam with
    SGD, `"shapes"` depth, width, MLP and patches, `"positions"` kinds of position embeddings,
    `"poolings"` the class token with means and attention, and `"axial"` attention among all patches
    with attention along rows and columns.

    The directory gets `results.csv` with a row per run, the figure `study.png` if matplotlib is
    installed, and the runs themselves. The same call resumes a study that was stopped, and more
    seeds, models or values may be added to it.

    Args:
        name: name of the study.
        recipe: a `Recipe`, or the name of one.
        data: name of a dataset, as in `keras_vit.data.load`. Models train on the train split; their
            accuracy is that on the test split. `None` for `"datasets"`, which has its own.
        workdir: path of a new directory, or of one that the same study was begun in.
        models: names of variants, also with other sizes: `"ViT_Ti16(patch_size=4, depth=6)"`.
        seeds: number of runs of each setting; the recipe's seed is that of the first.
        **options: `classes` and `data_dir` as in `keras_vit.data.load`.
            `values`, what is compared: for `"data-size"` shares of the training images, by default
            `(0.03, 0.1, 0.3, 1.0)`; for `"shapes"` factors of the sizes, by default `(0.5, 2.0)`;
            for `"datasets"` names of the pre-training sets; for `"positions"`, `"poolings"`,
            `"optimizers"`, `"pretraining"` and `"axial"` some of the kinds, such as `"none"` and
            `"2-D, learned"`, by default all.
            `tune`, dictionary from fields of the recipe, such as `"learning_rate"`, to values: each
            setting is trained with all combinations, with the first seed, and measured with those
            that are best on the validation split; `tuning/results.csv` records all.
            `fewshot_data`, a dataset for the few-shot accuracy, its `fewshot_classes` to keep, and
            `shots`, the labelled images per class, by default 5. Without it, that of `"data-size"`
            is on `data`, whose images and labels the model has seen.
            `finetune`, a `Recipe` or the name of one, and `finetune_data`, `finetune_classes` and
            `finetune_fraction`: what the trained models are fine-tuned on; the accuracy on its test
            split is measured, too. `"datasets"` and `"pretraining"` need them.

    Returns:
        A list of dictionaries, one per run: `setting`, `seed`, `exaflops`, `accuracy`; `images` for
        `"data-size"`, and `fewshot`, `finetuned` and the chosen values of `tune` where there are
        any. Accuracies are from 0 to 1; `None` stands for what a setting does not have.

    Raises:
        ValueError: if an argument is out of range, or the directory has another study.

    Reference:
        Sections 4.3, 4.4 and 4.6, and appendices D.1 to D.6 of the ViT paper (arXiv 2010.11929).

    Example:
        `docs/studies.md` has one on the digits, whose training takes longer than an example here.
    """
    plan = make_plan(name, recipe, data, workdir, models, seeds, **options)
    plan.check()
    settings = {setting.name: setting for setting in plan.settings}
    run_seeds = range(plan.recipe.seed, plan.recipe.seed + seeds)

    def run(setting, seed):
        return measure(plan, tune(plan, setting), seed)

    try:
        rows = grid(settings, run_seeds, run, plan.workdir, plan.facts())
    except (KeyboardInterrupt, SystemExit):
        logging.getLogger("keras_vit").info("to resume the study, repeat the same command or call")
        raise
    if importlib.util.find_spec("matplotlib"):
        _draw(plan, rows)
    return rows


def tune(plan, setting):
    """Return a setting with the values of `plan.tune` that are best on the validation images.

    Each combination is trained with the first seed, once. Masked patches have no accuracy to choose
    by.
    """
    if not plan.tune or not dataclasses.replace(plan.recipe, **setting.changes).is_of_classes:
        return setting
    tried = {}
    for values in itertools.product(*plan.tune.values()):
        found = dataclasses.replace(setting, tuned=dict(zip(plan.tune, values, strict=True)))
        tried[_tuned_name(found)] = found
    seed = plan.recipe.seed

    def train(setting):
        return train_setting(plan, setting, seed).history

    best, _ = choose(tried, seed, train, plan.workdir / "tuning", {"tune": list(plan.tune.items())})
    return tried[best]


def _tuned_name(setting):
    return setting.name + "".join(f", {field} {value:g}" for field, value in setting.tuned.items())


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained setting: its recipe, model, training images, directory, metrics and compute."""

    recipe: Recipe
    model: Any
    num_images: int
    directory: pathlib.Path
    history: list
    exaflops: float


def measure(plan, setting, seed):
    """Train a setting with a seed, and return what is measured of its model, by column."""
    trained = train_setting(plan, setting, seed)
    model, found = trained.model, {field: setting.tuned.get(field) for field in plan.tune}
    if plan.name == "data-size":
        # The model with the best validation accuracy: early stopping, as in section 4.3.
        model = load_trained(trained.directory)
        found["images"] = trained.num_images
    found |= {"exaflops": trained.exaflops, "accuracy": None}
    if trained.recipe.is_of_classes and not setting.is_scratch:
        found["accuracy"] = _accuracy(model, trained.recipe, *plan.images(setting))
    if plan.fewshot_data:
        found["fewshot"] = None if setting.is_scratch else _fewshot(plan, model, trained.recipe)
    if plan.finetune:
        if not setting.is_scratch:
            trained = finetune(plan, setting, trained)
        accuracy = _accuracy(trained.model, trained.recipe, *plan.target)
        found |= {"exaflops": trained.exaflops, "finetuned": accuracy}
    return found


def train_setting(plan, setting, seed):
    """Train a setting with a seed, or resume its run; returns a `Trained`."""
    changes = {**setting.changes, **setting.tuned, "seed": seed}
    recipe = dataclasses.replace(plan.recipe, **changes)
    data, options = plan.images(setting)
    fraction = setting.fraction
    source = find_source(data, "train", **options)
    # As many steps and evaluations for each fraction.
    epoch_examples = source.num_examples
    if setting.is_scratch:
        recipe = from_scratch(plan, recipe, source)
        data, options = plan.target
        fraction, epoch_examples = plan.finetune_fraction or 1.0, None
        source = find_source(data, "train", **options)
    name = re.sub(r"\W+", "_", f"{_tuned_name(setting)}, seed {seed}")
    run = job.train(
        recipe,
        setting.model,
        data,
        plan.workdir / name,
        fraction=fraction,
        strategy="none",
        resume=True,
        epoch_examples=epoch_examples,
        **options,
    )
    exaflops = training_exaflops(recipe, setting.model, source, recipe)
    num_images = source.part(fraction).num_examples
    return Trained(recipe, run.model, num_images, plan.workdir / name, run.history, exaflops)


def from_scratch(plan, recipe, source):
    """Return a recipe with as many images as pre-training on a source and fine-tuning together."""
    data, options = plan.target
    target = find_source(data, "train", **options).part(plan.finetune_fraction or 1.0)
    images = 0
    for trained_by, of in ((recipe, source), (plan.finetune, target)):
        epochs, steps = trained_by.epoch_lengths(of.num_examples)
        images += epochs * steps * trained_by.batch_size
    steps = -(-images // recipe.batch_size)
    size = plan.finetune.image_size
    return dataclasses.replace(recipe, epochs=None, steps=steps, image_size=size)


def finetune(plan, setting, trained):
    """Fine-tune a trained setting; returns a `Trained` with the compute of both trainings."""
    recipe = dataclasses.replace(plan.finetune, seed=trained.recipe.seed)
    data, options = plan.target
    fraction, directory = plan.finetune_fraction or 1.0, trained.directory / "finetuning"
    part = find_source(data, "train", **options).part(fraction)
    run = job.train(
        recipe,
        str(trained.directory / LAST_MODEL),
        data,
        directory,
        fraction=fraction,
        strategy="none",
        resume=True,
        **options,
    )
    exaflops = training_exaflops(recipe, setting.model, part, trained.recipe)
    exaflops += trained.exaflops
    return Trained(recipe, run.model, part.num_examples, directory, run.history, exaflops)


def training_exaflops(recipe, model, source, built_by):
    """Return the exaFLOPs of training a variant by a recipe on the images of a source.

    `built_by` is the recipe that the model was built by; another one fine-tunes it as it is.
    """
    epochs, steps = recipe.epoch_lengths(source.num_examples)
    images = steps * recipe.batch_size
    num_classes = len(source.class_names) if recipe.is_of_classes else 0
    row = with_settings(find_variant(model), built_by)
    return count_training_exaflops(row, images, epochs, num_classes, recipe.image_size)


def _accuracy(model, recipe, data, options):
    options = {**options, "upright": recipe.upright}
    images = load(data, "test", recipe.image_size, recipe.batch_size, **options)
    return evaluate(model, images)["accuracy"]


def _fewshot(plan, model, recipe):
    options = {"classes": plan.fewshot_classes, "data_dir": plan.data_dir}
    options |= {"shots": (plan.shots,), "batch_size": recipe.batch_size}
    return statistics.mean(evaluate_fewshot(model, plan.fewshot_data, **options).values())


def _share(found):
    if None in found:
        return "-"
    return f"{mean_and_deviation([100 * value for value in found], 2)} %"


def _chosen(found):
    return ", ".join(dict.fromkeys("-" if value is None else f"{value:g}" for value in found))


# Per measured column its title, and a function that prints the values of a setting. Others are
# those of the recipe that were tuned.
_SUMMARIES = {
    "images": ("images", lambda found: f"{statistics.mean(found):,.0f}"),
    "exaflops": ("exaFLOPs", lambda found: f"{found[0]:.3g}"),
    "fewshot": ("few-shot accuracy", _share),
    "finetuned": ("fine-tuned accuracy", _share),
    "accuracy": ("test accuracy", _share),
}


def summary(rows):
    """Return columns and rows of strings: the means over the seeds of each setting.

    Accuracies have the standard deviation (n - 1) too.

    Example:
    >>> summary([{"setting": "none", "seed": s, "accuracy": s / 4} for s in (1, 3)])
    (('setting', 'seeds', 'test accuracy'), [('none', '2', '50.00 ± 35.36 %')])
    """
    tuned = {*rows[0]} - {"setting", "seed", *_SUMMARIES}
    shown = {name: (name.replace("_", " "), _chosen) for name in rows[0] if name in tuned}
    shown |= {name: how for name, how in _SUMMARIES.items() if name in rows[0]}
    lines = []
    for name, accuracies in by_setting(rows, "accuracy").items():
        cells = [how(by_setting(rows, column)[name]) for column, (_, how) in shown.items()]
        lines.append((name, f"{len(accuracies)}", *cells))
    return ("setting", "seeds", *(title for title, _ in shown.values())), lines


def _draw(plan, rows):
    short = short_names({row["setting"] for row in rows})
    rows = [{**row, "setting": short[row["setting"]]} for row in rows]
    kind, picture = STUDIES[plan.name], plan.workdir / FIGURE
    titles = {
        "finetuned": "Accuracy after fine-tuning (%)",
        "fewshot": f"{plan.shots}-shot accuracy (%)",
        "accuracy": "Test accuracy (%)",
    }
    panels = {titles[name]: name for name in titles if name in rows[0]}
    if kind.is_by_compute:
        exaflops = {name: found[0] for name, found in by_setting(rows, "exaflops").items()}
        title, column = next(iter(panels.items()))
        draw_scaling(exaflops, by_setting(rows, column), kind.title, picture, title)
    elif plan.name == "data-size":
        settings = plan.settings
        names = short_names({setting.model for setting in settings})
        models = {short[setting.name]: names[setting.model] for setting in settings}
        rows = [{**row, "model": models[row["setting"]]} for row in rows]
        draw_data_sizes(rows, panels, kind.title, picture)
    else:
        found = {title: by_setting(rows, column) for title, column in panels.items()}
        draw_study(found, kind.title, picture)
