"""Run a study of the paper: train each setting with each seed, and draw the results."""

import dataclasses
import importlib.util
import itertools
import os
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

from keras_vit.checkpoints.named_models import load_trained
from keras_vit.checkpoints.run_files import AVERAGED_MODEL, LAST_MODEL
from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.pipeline import find_source, load
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.evaluation.classification import evaluate
from keras_vit.evaluation.costs import count_training_exaflops
from keras_vit.evaluation.fewshot import evaluate_fewshot
from keras_vit.experiments.grid import by_setting, grid
from keras_vit.experiments.study_table import STUDIES
from keras_vit.experiments.sweep import choose
from keras_vit.inspection.figures.charts import (
    draw_data_sizes,
    draw_scaling,
    draw_study,
    short_labels,
)
from keras_vit.models.options import is_resnet
from keras_vit.models.variants import find_variant
from keras_vit.training import trainer
from keras_vit.training.recipe import Recipe, find_recipe
from keras_vit.training.starting_model import with_settings

FIGURE = "study.png"
# From the columns of `results.csv` with measured values to their titles. Other columns have the
# values of the recipe's fields that were tuned.
_TITLES = {
    "images": "images",
    "exaflops": "exaFLOPs",
    "fewshot": "few-shot accuracy",
    "finetuned": "fine-tuned accuracy",
    "accuracy": "test accuracy",
}


@dataclasses.dataclass(frozen=True)
class Images:
    """The dataset of an experiment, on which models are trained and tested.

    Args:
        name: name of a dataset, as in `keras_vit.data.load`.
        classes: names of the classes to keep; all by default.
        data_dir: directory of TensorFlow Datasets.
        fraction: share of the training images to train on.
    """

    name: str
    classes: Sequence[str] | None = None
    data_dir: os.PathLike | None = None
    fraction: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "name", absolute_name(self.name))

    def source(self, split="train"):
        """Return the `Source` of a split: all of its images, not only the `fraction`."""
        return find_source(self.name, split, self.classes, self.data_dir)

    def conditions(self, splits=("train", "validation", "test")):
        """Return a dictionary of what results depend on: arguments, and a digest of each split.

        Raises:
            ValueError: if a split cannot be loaded.
        """
        # Sorted, because the order of `classes` has no effect.
        conditions = {"name": self.name, "classes": sorted(self.classes or ())}
        conditions |= {f"{split} digest": self.source(split).digest() for split in splits}
        return {**conditions, "fraction": self.fraction}

    def train(self, recipe, model, workdir, **options):
        """Train a model on the images, or resume its run, and return the `Run`."""
        images = {name: getattr(self, name) for name in ("classes", "data_dir", "fraction")}
        options = {"strategy": "none", "resume": True, **images, **options}
        return trainer.train(recipe, model, self.name, workdir, **options)

    def accuracy(self, model, recipe):
        """Return the accuracy of a model on the test split."""
        test = load(
            *(self.name, "test", recipe.image_size, recipe.batch_size // recipe.accumulation_steps),
            classes=self.classes,
            data_dir=self.data_dir,
            upright=recipe.upright,
        )
        accuracy = evaluate(model, test)["accuracy"]
        if len(test.info.skipped):
            print(test.info.skipped)
        return accuracy


@dataclasses.dataclass
class Plan:
    """The arguments of `study`, with defaults instead of missing values."""

    name: str
    recipe: Recipe | str
    data: str | None
    workdir: str | os.PathLike
    models: Sequence[str] = ("ViT_Ti16",)
    seeds: int = 3
    values: Sequence | None = None
    classes: Sequence[str] | None = None
    data_dir: str | os.PathLike | None = None
    tune: dict = dataclasses.field(default_factory=dict)
    fewshot_data: str | None = None
    fewshot_classes: Sequence[str] | None = None
    shots: int = 5
    finetune: Recipe | str | None = None
    finetune_data: str | None = None
    finetune_classes: Sequence[str] | None = None
    finetune_fraction: float = 1.0

    def __post_init__(self):
        check_choice("name", self.name, tuple(STUDIES))
        kind = STUDIES[self.name]
        self.recipe = find_recipe(self.recipe)
        self.finetune = self.finetune and find_recipe(self.finetune)
        # A study may be resumed from another working directory.
        self.workdir = pathlib.Path(self.workdir).expanduser().resolve()
        self.values = tuple(map(kind.parse, kind.values if self.values is None else self.values))
        if self.name == "datasets":
            self.data = next(iter(self.values), None)
        if self.data is None:
            raise ValueError(
                f"The study {self.name!r} needs `data`; the study 'datasets' needs `values`. "
                "Received: None"
            )
        if self.name == "data-size" and self.fewshot_data is None:
            self.fewshot_data, self.fewshot_classes = self.data, self.classes

    def images(self, setting):
        """Return the `Images` to train a setting on."""
        return Images(setting.data or self.data, self.classes, self.data_dir, setting.fraction)

    @property
    def fewshot(self):
        """The `Images` for the few-shot accuracy, or `None`."""
        return self.fewshot_data and Images(self.fewshot_data, self.fewshot_classes, self.data_dir)

    @property
    def target(self):
        """The `Images` to fine-tune on, or `None`."""
        options = self.finetune_classes, self.data_dir, self.finetune_fraction
        return self.finetune_data and Images(self.finetune_data, *options)

    @property
    def settings(self):
        """The settings to compare, a list of `Setting`."""
        of_model = STUDIES[self.name].settings
        return [s for m in self.models for s in of_model(self.recipe, m, self.values)]

    def conditions(self):
        """Return a dictionary of what the results depend on, except the setting and the seed."""
        fewshot, target = self.fewshot, self.target
        conditions = {
            "study": self.name,
            "recipe": {**dataclasses.asdict(self.recipe), "seed": None},
            "tune": list(self.tune.items()),
            "fewshot": fewshot and {**fewshot.conditions(("train", "test")), "shots": self.shots},
            "finetune_data": target and target.conditions(),
            "finetune": self.finetune and dataclasses.asdict(self.finetune),
        }
        for images in {setting.data: self.images(setting) for setting in self.settings}.values():
            whole = dataclasses.replace(images, fraction=1.0)
            conditions[f"data {images.name}"] = whole.conditions()
        return conditions

    def check(self):
        """Raise now the `ValueError`s that would otherwise be raised after the first runs."""
        check_integer("seeds", self.seeds, 1)
        if not self.settings:
            raise ValueError(
                f"The study {self.name!r} needs `models` and `values`. "
                f"Received: models={self.models}, values={self.values}"
            )
        pair = self.finetune, self.finetune_data
        if None in pair and (any(pair) or self.name in ("datasets", "pretraining")):
            raise ValueError(
                "`finetune` and `finetune_data` must be given together; the studies 'datasets' "
                f"and 'pretraining' need them. Received: {pair}"
            )
        for setting in self.settings:
            variant = find_variant(setting.model)
            if STUDIES[self.name].needs_patches and is_resnet(variant):
                raise ValueError(
                    f"`models` must have patches for the study {self.name!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            # These lines raise an error for a wrong recipe, or patches that do not tile the images.
            recipes = [each.applied_to(self.recipe) for each in self.combinations(setting)]
            for recipe in filter(None, (*recipes, self.finetune)):
                _ = variant.replace(image_size=recipe.image_size).grid

    def combinations(self, setting):
        """Return copies of a setting, one for each combination of the values of `tune`.

        For masked patches, which have no accuracy to choose by, return only the setting itself.
        """
        if not setting.applied_to(self.recipe).for_classifier:
            return [setting]
        return [
            dataclasses.replace(setting, tuned=dict(zip(self.tune, values, strict=True)))
            for values in itertools.product(*self.tune.values())
        ]


def study(
    name: str,
    recipe: Recipe | str,
    data: str | None,
    workdir: str | os.PathLike,
    models: Sequence[str] = ("ViT_Ti16",),
    seeds: int = 3,
    **options: Any,
) -> list[dict]:
    """Train models that differ in one property, by the same recipe and with several seeds.

    The studies compare:

    - `"scaling"`: models.
    - `"data-size"`: shares of the training images, with the same number of steps.
    - `"datasets"`: pre-training sets.
    - `"pretraining"`: pre-training on classes, on masked patches, or none, before the same
      fine-tuning.
    - `"optimizers"`: Adam and SGD.
    - `"shapes"`: depth, width, width of the MLPs, and patch size.
    - `"positions"`: position embeddings.
    - `"poolings"`: class token, mean of the patches, and attention.
    - `"axial"`: attention among all patches, or along rows and columns.

    The study writes to `workdir`: `results.csv` with a row per run, the figure `study.png` if
    matplotlib is installed, and the directories of the runs. The same call resumes a stopped study.
    A later call may add seeds, models or values.

    Args:
        name: name of the study.
        recipe: a `Recipe`, or the name of a recipe.
        data: name of a dataset, as in `keras_vit.data.load`. Models are trained on its train split
            and tested on its test split. `None` for `"datasets"`, whose `values` are datasets.
        workdir: path of a new directory, or of the directory of the same study.
        models: names of variants, optionally with other sizes, such as
            `"ViT_Ti16(patch_size=4, depth=6)"`.
        seeds: number of runs of each setting, with the recipe's seed and the seeds after it.
        **options: `classes` and `data_dir` as in `keras_vit.data.load`.
            `values`: what to compare. For `"data-size"`, shares of the training images, by default
            `(0.03, 0.1, 0.3, 1.0)`; for `"shapes"`, factors of the sizes, by default `(0.5, 2.0)`;
            for `"datasets"`, names of the pre-training sets; for `"positions"`, `"poolings"`,
            `"optimizers"`, `"pretraining"` and `"axial"`, names such as `"none"` and
            `"2-D, learned"`, by default all names.
            `tune`: dictionary from fields of the recipe, such as `"learning_rate"`, to lists of
            values. Each setting is trained with each combination of values and the first seed. The
            combination with the best validation accuracy is used with all seeds.
            `tuning/results.csv` has the accuracies of all combinations.
            `fewshot_data`: dataset for the few-shot accuracy, with `fewshot_classes`, the classes
            to keep, and `shots`, the number of labelled images per class, by default 5. The default
            of `fewshot_data` for `"data-size"` is `data`, on which the model was trained.
            `finetune`: a `Recipe`, or the name of a recipe, by which the trained models are
            fine-tuned on `finetune_data` (with `finetune_classes` and `finetune_fraction`) and then
            tested on its test split. `"datasets"` and `"pretraining"` need both.

    Returns:
        A list of dictionaries, one per run, with `setting`, `seed`, `exaflops` and `accuracy`; with
        `images` for `"data-size"`; and with `fewshot`, `finetuned` and the chosen values of `tune`
        if the options above are given. Accuracies are from 0 to 1. `None` stands for a value that a
        setting does not have.

    Raises:
        ValueError: if an argument is out of range, or `workdir` contains another study.

    Reference:
        Sections 4.3, 4.4 and 4.6, and appendices D.1 to D.6 of the ViT paper (arXiv 2010.11929).

    Example:
        See `docs/studies.md`: a study trains for too long to be an example here.
    """
    plan = Plan(name, recipe, data, workdir, models, seeds, **options)
    plan.check()
    settings = {setting.name: setting for setting in plan.settings}
    run_seeds = range(plan.recipe.seed, plan.recipe.seed + seeds)

    def run(setting, seed):
        return measure_setting(plan, choose_values(plan, setting), seed)

    rows = grid(settings, run_seeds, run, plan.workdir, plan.conditions())
    if importlib.util.find_spec("matplotlib"):
        _draw(plan, rows)
    return rows


def choose_values(plan, setting):
    """Return a setting with the values of `plan.tune` that have the best validation accuracy.

    Each combination is trained once, with the first seed.
    """
    combinations = {each.full_name: each for each in plan.combinations(setting)}
    if [*combinations.values()] == [setting]:
        return setting

    def train(setting):
        return train_setting(plan, setting, plan.recipe.seed).run.history

    conditions = {"tune": list(plan.tune.items())}
    best, _ = choose(combinations, plan.recipe.seed, train, plan.workdir / "tuning", conditions)
    return combinations[best]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The run of a setting, its number of training images, and its compute in exaFLOPs."""

    run: trainer.Run
    num_images: int
    exaflops: float


def measure_setting(plan, setting, seed):
    """Train a setting with a seed, and return the results as a dictionary for `results.csv`."""
    trained = train_setting(plan, setting, seed)
    model, recipe = trained.run.model, trained.run.recipe
    row = {field: setting.tuned.get(field) for field in plan.tune}
    if plan.name == "data-size":
        # Measure the model with the best validation accuracy, the early stopping of section 4.3.
        model = load_trained(trained.run.workdir)
        row["images"] = trained.num_images
    row |= {"exaflops": trained.exaflops, "accuracy": None}
    if recipe.for_classifier and not setting.is_only_finetuned:
        row["accuracy"] = plan.images(setting).accuracy(model, recipe)
    if plan.fewshot:
        row["fewshot"] = None if setting.is_only_finetuned else _fewshot(plan, model, recipe)
    if plan.finetune:
        if not setting.is_only_finetuned:
            trained = finetune_setting(plan, setting, trained)
        accuracy = plan.target.accuracy(trained.run.model, trained.run.recipe)
        row |= {"exaflops": trained.exaflops, "finetuned": accuracy}
    return row


def train_setting(plan, setting, seed):
    """Train a setting with a seed, or resume its run, and return a `Trained`."""
    recipe = dataclasses.replace(setting.applied_to(plan.recipe), seed=seed)
    images = plan.images(setting)
    source = images.source()
    # Train with each share of the images for the same number of steps, and evaluate equally often.
    epoch_examples = source.num_examples
    if setting.is_only_finetuned:
        recipe, images = from_scratch(plan, recipe, source), plan.target
        source, epoch_examples = images.source(), None
    directory = plan.workdir / re.sub(r"\W+", "_", f"{setting.full_name}, seed {seed}")
    run = images.train(recipe, setting.model, directory, epoch_examples=epoch_examples)
    exaflops = training_exaflops(recipe, setting.model, source, recipe)
    return Trained(run, source.subset(images.fraction).num_examples, exaflops)


def from_scratch(plan, recipe, source):
    """Return a recipe that trains on as many images as pre-training and fine-tuning together.

    `source` has the images of the pre-training.
    """
    images, target = 0, plan.target.source().subset(plan.target.fraction)
    for phase, phase_source in ((recipe, source), (plan.finetune, target)):
        epochs, steps = phase.epoch_lengths(phase_source.num_examples)
        images += epochs * steps * phase.batch_size
    steps = -(-images // recipe.batch_size)
    size = plan.finetune.image_size
    return dataclasses.replace(recipe, epochs=None, steps=steps, image_size=size)


def finetune_setting(plan, setting, trained):
    """Fine-tune the model of a setting, and return a `Trained` with the compute of both runs."""
    before, source = trained.run, plan.target.source().subset(plan.target.fraction)
    recipe = dataclasses.replace(plan.finetune, seed=before.recipe.seed)
    # Fine-tune the weights that were measured: the EMA, if the recipe has one.
    last = LAST_MODEL if before.recipe.ema_momentum is None else AVERAGED_MODEL
    run = plan.target.train(recipe, str(before.workdir / last), before.workdir / "finetuning")
    exaflops = training_exaflops(recipe, setting.model, source, before.recipe) + trained.exaflops
    return Trained(run, source.num_examples, exaflops)


def training_exaflops(recipe, model, source, built_by):
    """Return the exaFLOPs of training a variant by a recipe on the images of a source.

    `built_by` is the recipe by which the model was built: in fine-tuning, that of the pre-training.
    """
    epochs, steps = recipe.epoch_lengths(source.num_examples)
    images = steps * recipe.batch_size
    num_classes = len(source.class_names) if recipe.for_classifier else 0
    row = with_settings(find_variant(model), built_by)
    return count_training_exaflops(row, images, epochs, num_classes, recipe.image_size)


def _fewshot(plan, model, recipe):
    options = {"classes": plan.fewshot.classes, "data_dir": plan.fewshot.data_dir}
    options |= {"shots": (plan.shots,), "batch_size": recipe.batch_size}
    return statistics.mean(evaluate_fewshot(model, plan.fewshot.name, **options).values())


def summary_table(rows):
    """Return column titles, and rows of strings with the mean over the seeds of each setting.

    Accuracies are followed by their standard deviation (n - 1).

    Example:
    >>> summary_table([{"setting": "none", "seed": s, "accuracy": s / 4} for s in (1, 3)])
    (('setting', 'seeds', 'test accuracy'), [('none', '2', '50.00 ± 35.36 %')])
    """
    names = [name for name in rows[0] if name not in ("setting", "seed", *_TITLES)]
    names += [name for name in _TITLES if name in rows[0]]
    titles = (_TITLES.get(name, name.replace("_", " ")) for name in names)
    lines = []
    for setting, seeds in by_setting(rows, "seed").items():
        cells = (_cell(name, by_setting(rows, name)[setting]) for name in names)
        lines.append((setting, f"{len(seeds)}", *cells))
    return ("setting", "seeds", *titles), lines


def _cell(column, values):
    values = [value for value in values if value is not None]
    if values and column in ("fewshot", "finetuned", "accuracy"):
        return f"{mean_and_deviation([100 * value for value in values], 2)} %"
    texts = (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in values)
    return ", ".join(dict.fromkeys(texts)) or "-"


def _draw(plan, rows):
    short = short_labels({row["setting"] for row in rows})
    rows = [{**row, "setting": short[row["setting"]]} for row in rows]
    kind, picture = STUDIES[plan.name], plan.workdir / FIGURE
    titles = {
        "finetuned": "Accuracy after fine-tuning (%)",
        "fewshot": f"{plan.shots}-shot accuracy (%)",
        "accuracy": "Test accuracy (%)",
    }
    panels = {titles[n]: n for n in titles if any(row.get(n) is not None for row in rows)}
    if not panels:
        return
    if kind.shows_compute:
        exaflops = {name: values[0] for name, values in by_setting(rows, "exaflops").items()}
        title, column = next(iter(panels.items()))
        draw_scaling(exaflops, by_setting(rows, column), kind.title, picture, title)
    elif plan.name == "data-size":
        rows = [{**row, "model": row["setting"].rpartition(", ")[0]} for row in rows]
        draw_data_sizes(rows, panels, kind.title, picture)
    else:
        values = {title: by_setting(rows, column) for title, column in panels.items()}
        draw_study(values, kind.title, picture)
