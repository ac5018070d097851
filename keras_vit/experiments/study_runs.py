"""One run of a study: train a setting, and measure its model."""

import dataclasses
import re

from keras_vit.checkpoints.trained.loading import load_trained
from keras_vit.data.datasets import find_source, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.evaluation.compute import count_training_exaflops
from keras_vit.evaluation.fewshot import evaluate_fewshot
from keras_vit.models.variants import find_variant
from keras_vit.training import job
from keras_vit.training.training_data import load_training_data


def train_setting(plan, setting, seed):
    """Train a setting with a seed, or resume its run.

    Returns `(recipe, model, num_images, exaflops)`: the recipe of the run, the trained model, the
    number of its training images, and the compute of its training.
    """
    print(f"{setting.name}, seed {seed}")
    recipe = dataclasses.replace(plan.recipe, **setting.changes, seed=seed)
    source = find_source(plan.data, "train", **plan.data_options)
    num_images = source.part(setting.fraction).num_examples
    run = job.train(
        recipe,
        setting.model,
        plan.data,
        run_directory(plan, setting, seed),
        fraction=setting.fraction,
        strategy="none",
        resume=True,
        facts={"num_examples": num_images},
        # As many steps and evaluations for each fraction.
        epoch_examples=source.num_examples,
        **plan.data_options,
    )
    return recipe, run.model, num_images, training_exaflops(recipe, setting.model, source)


def training_exaflops(recipe, model, source):
    """Return the exaFLOPs of training a variant by a recipe on the images of a source."""
    epochs, steps = recipe.epoch_lengths(source.num_examples)
    images, num_classes = steps * recipe.batch_size, len(source.class_names)
    options = {
        name: getattr(recipe, name)
        for name in ("image_size", "pooling", "position_embedding", "axial")
    }
    return count_training_exaflops(find_variant(model), images, epochs, num_classes, **options)


def measure_last(plan, setting, seed):
    """Return the compute of a run, and the accuracy of its last model on the test split."""
    recipe, model, _, exaflops = train_setting(plan, setting, seed)
    return {"exaflops": exaflops, "accuracy": evaluate(model, _test_data(plan, recipe))["accuracy"]}


def measure_best(plan, setting, seed):
    """Return the images and the compute of a run, and two accuracies of its best model.

    The best model has the highest validation accuracy: early stopping, as in section 4.3.
    """
    recipe, _, num_images, exaflops = train_setting(plan, setting, seed)
    best = load_trained(run_directory(plan, setting, seed))
    options = dict(plan.data_options, shots=(plan.shots,), batch_size=recipe.batch_size)
    if plan.fewshot_data:
        options["classes"] = plan.fewshot_classes
    fewshot = evaluate_fewshot(best, plan.fewshot_data or plan.data, **options)
    return {
        "images": num_images,
        "exaflops": exaflops,
        "accuracy": evaluate(best, _test_data(plan, recipe))["accuracy"],
        "fewshot": sum(fewshot.values()) / len(fewshot),
    }


def check_data(plan):
    """Raise `ValueError` if a dataset of a study lacks something, before hours of training."""
    smallest = min(setting.fraction for setting in plan.settings)
    load_training_data(plan.recipe, plan.data, fraction=smallest, **plan.data_options)
    _test_data(plan, plan.recipe)
    if plan.fewshot_data:
        for split in ("train", "test"):
            find_source(plan.fewshot_data, split, plan.fewshot_classes, plan.data_dir)


def run_directory(plan, setting, seed):
    """Return the directory of a run."""
    return plan.workdir / re.sub(r"\W+", "_", f"{setting.name}, seed {seed}")


def _test_data(plan, recipe):
    return load(plan.data, "test", recipe.image_size, recipe.batch_size, **plan.data_options)
