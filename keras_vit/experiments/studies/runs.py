"""One run of a study: train a setting, and measure its model."""

import dataclasses
import pathlib
import re

import keras

from keras_vit.checkpoints.runs import LAST_MODEL
from keras_vit.checkpoints.trained import load_trained
from keras_vit.data.loading import find_source, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.evaluation.costs import count_training_exaflops
from keras_vit.evaluation.fewshot import evaluate_fewshot
from keras_vit.experiments.studies.settings import DATA_SIZE
from keras_vit.models.variants import find_variant
from keras_vit.training import job
from keras_vit.training.recipes.recipe import Recipe
from keras_vit.training.starting_model import with_settings

FINETUNING = "finetuning"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained setting: its recipe, model, training images, directory, metrics and compute."""

    recipe: Recipe
    model: keras.Model
    num_images: int
    directory: pathlib.Path
    history: list
    exaflops: float


def measure(plan, setting, seed):
    """Train a setting with a seed, and return what is measured of its model, by column."""
    trained = train_setting(plan, setting, seed)
    model = trained.model
    if plan.name == DATA_SIZE:
        # The model with the best validation accuracy: early stopping, as in section 4.3.
        model = load_trained(trained.directory)
    found = {"images": trained.num_images} if plan.name == DATA_SIZE else {}
    found |= {"exaflops": trained.exaflops, "accuracy": None}
    if trained.recipe.is_of_classes and not setting.is_scratch:
        data = setting.data or plan.data
        found["accuracy"] = _accuracy(model, trained.recipe, data, plan.data_options)
    if plan.name == DATA_SIZE or plan.fewshot_data:
        found["fewshot"] = None if setting.is_scratch else _fewshot(plan, model, trained.recipe)
    if plan.finetune:
        if not setting.is_scratch:
            trained = finetune(plan, setting, trained)
        target = trained.recipe, plan.finetune_data, plan.finetune_options
        found |= {"exaflops": trained.exaflops, "finetuned": _accuracy(trained.model, *target)}
    tuned = dict(setting.tuned)
    return {**{field: tuned.get(field) for field in plan.tune}, **found}


def train_setting(plan, setting, seed):
    """Train a setting with a seed, or resume its run; returns a `Trained`."""
    print(f"{setting.name}, seed {seed}")
    recipe = dataclasses.replace(
        plan.recipe, **{**setting.changes, **dict(setting.tuned)}, seed=seed
    )
    data, options = setting.data or plan.data, plan.data_options
    fraction = setting.fraction
    source = find_source(data, "train", **options)
    # As many steps and evaluations for each fraction.
    epoch_examples = source.num_examples
    if setting.is_scratch:
        recipe = from_scratch(plan, recipe, source)
        data, options = plan.finetune_data, plan.finetune_options
        fraction, epoch_examples = plan.finetune_fraction, None
        source = find_source(data, "train", **options)
    directory = run_directory(plan, setting, seed)
    num_images = source.part(fraction).num_examples
    run = job.train(
        recipe,
        setting.model,
        data,
        directory,
        fraction=fraction,
        strategy="none",
        resume=True,
        facts={"num_examples": num_images},
        epoch_examples=epoch_examples,
        **options,
    )
    exaflops = training_exaflops(recipe, setting.model, source, recipe)
    return Trained(recipe, run.model, num_images, directory, run.history, exaflops)


def from_scratch(plan, recipe, source):
    """Return a recipe with as many images as pre-training on a source and fine-tuning together."""
    epochs, steps = recipe.epoch_lengths(source.num_examples)
    target = find_source(plan.finetune_data, "train", **plan.finetune_options)
    others = plan.finetune.epoch_lengths(target.part(plan.finetune_fraction).num_examples)
    images = epochs * steps * recipe.batch_size
    images += others[0] * others[1] * plan.finetune.batch_size
    steps = -(-images // recipe.batch_size)
    return dataclasses.replace(
        recipe, epochs=None, steps=steps, image_size=plan.finetune.image_size
    )


def finetune(plan, setting, trained):
    """Fine-tune a trained setting; returns a `Trained` with the compute of both trainings."""
    recipe = dataclasses.replace(plan.finetune, seed=trained.recipe.seed)
    source = find_source(plan.finetune_data, "train", **plan.finetune_options)
    part = source.part(plan.finetune_fraction)
    directory = trained.directory / FINETUNING
    run = job.train(
        recipe,
        str(trained.directory / LAST_MODEL),
        plan.finetune_data,
        directory,
        fraction=plan.finetune_fraction,
        strategy="none",
        resume=True,
        **plan.finetune_options,
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


def run_directory(plan, setting, seed):
    """Return the directory of a run."""
    tuned = "".join(f", {field} {value:g}" for field, value in setting.tuned)
    return plan.workdir / re.sub(r"\W+", "_", f"{setting.name}{tuned}, seed {seed}")


def _accuracy(model, recipe, data, options):
    options = {**options, "upright": recipe.upright}
    images = load(data, "test", recipe.image_size, recipe.batch_size, **options)
    return evaluate(model, images)["accuracy"]


def _fewshot(plan, model, recipe):
    options = dict(plan.data_options, shots=(plan.shots,), batch_size=recipe.batch_size)
    if plan.fewshot_data:
        options["classes"] = plan.fewshot_classes
    found = evaluate_fewshot(model, plan.fewshot_data or plan.data, **options)
    return sum(found.values()) / len(found)
