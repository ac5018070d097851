"""Run a study: its table and its figure."""

import importlib.util
import logging
import os
from collections.abc import Sequence
from typing import Any

from keras_vit.experiments.studies.plan import make_plan
from keras_vit.experiments.studies.runs import measure
from keras_vit.experiments.studies.settings import DATA_SIZE, STUDIES
from keras_vit.experiments.studies.table import by_setting, run_study
from keras_vit.experiments.studies.tuning import Tuning
from keras_vit.inspection.figures.charts import (
    draw_data_sizes,
    draw_scaling,
    draw_study,
    short_names,
)
from keras_vit.training.recipe import Recipe

FIGURE = "study.png"


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

    The directory gets `study.csv` with a row per run, the figure `study.png` if matplotlib is
    installed, and the runs themselves. The same call resumes a study that was stopped, and more
    seeds or models may be added to it.

    Args:
        name: name of the study.
        recipe: a `Recipe`, or the name of one.
        data: name of a dataset, as in `keras_vit.data.load`. Models train on the train split; their
            accuracy is that on the test split. `None` for `"datasets"`, which has its own.
        workdir: path of a new directory, or of one that the same study was begun in.
        models: names of variants, also with other sizes: `"ViT_Ti16(patch_size=4, depth=6)"`.
        seeds: number of runs of each setting; the recipe's seed is that of the first.
        **options: `classes` and `data_dir` as in `keras_vit.data.load`.
            `tune`, dictionary from `"learning_rate"`, `"weight_decay"`, `"dropout"` or
            `"label_smoothing"` to values: each setting is trained with all combinations, with the
            first seed, and measured with those that are best on the validation split; `tuning.csv`
            records all.
            `fewshot_data`, a dataset for the few-shot accuracy, its `fewshot_classes` to keep, and
            `shots`, the labelled images per class, by default 5.
            `finetune`, a `Recipe` or the name of one, and `finetune_data`, `finetune_classes` and
            `finetune_fraction`: what the trained models are fine-tuned on, at
            `finetune_image_size` pixels instead of the recipe's; the accuracy on its test split is
            measured, too. `"datasets"` and `"pretraining"` need them.
            `fractions`, for `"data-size"`: shares of the training images, by default
            `(0.03, 0.1, 0.3, 1.0)`. Without `fewshot_data` its few-shot accuracy is that on `data`,
            whose images and labels the model has seen.
            `datasets`, for `"datasets"`: names of the pre-training sets.
            `factors`, for `"shapes"`: factors of the sizes, by default `(0.5, 2.0)`.
            `positions`, for `"positions"`: the kinds to compare, such as `"none"` and
            `"2-D, learned"`; all nine by default.

    Returns:
        A list of dictionaries, one per run: `setting`, `seed`, `exaflops`, `accuracy`; `images` for
        `"data-size"`, and `fewshot`, `finetuned` and the chosen values of `tune` where there are
        any. Accuracies are from 0 to 1; `None` stands for what a setting does not have.

    Raises:
        ValueError: if an argument is out of range, or the directory has another study.

    Reference:
        Sections 4.3, 4.4 and 4.6, and appendices D.1 to D.4 of the ViT paper (arXiv 2010.11929).

    Example:
        `docs/studies.md` has one on the digits, whose training takes longer than an example here.
    """
    plan = make_plan(name, recipe, data, workdir, models=models, seeds=seeds, **options)
    plan.check()
    tuned = Tuning(plan)
    settings = plan.settings
    print(f"Settings: {len(settings)}, seeds: {seeds}, runs: {len(settings) * seeds}")
    try:
        rows = run_study(
            settings,
            plan.run_seeds,
            lambda setting, seed: measure(plan, tuned(setting), seed),
            plan.workdir,
            plan.facts(),
        )
    except (KeyboardInterrupt, SystemExit):
        logging.getLogger("keras_vit").info("to resume the study, repeat the same command or call")
        raise
    if importlib.util.find_spec("matplotlib"):
        _draw(plan, rows)
    return rows


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
    elif plan.name == DATA_SIZE:
        settings = plan.settings
        names = short_names({setting.model for setting in settings})
        models = {short[setting.name]: names[setting.model] for setting in settings}
        rows = [{**row, "model": models[row["setting"]]} for row in rows]
        draw_data_sizes(rows, panels, kind.title, picture)
    else:
        found = {title: by_setting(rows, column) for title, column in panels.items()}
        draw_study(found, kind.title, picture)
