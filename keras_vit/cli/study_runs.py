"""One run of a study: what it trains, and what is measured of it."""

import dataclasses
import re


def train_setting(study, setting, seed):
    """Trains what a setting says, or goes on where that was stopped.

    Args:
        study: the `Study`.
        setting: a `Setting`.
        seed: of the run.

    Returns:
        `(recipe, model, num_images, exaflops)`: the recipe as it was run, the trained model, how
        many images it was trained on, and the compute of that.
    """
    from keras_vit.data.datasets import find_source
    from keras_vit.evaluation.compute import count_training_exaflops
    from keras_vit.models import find_variant
    from keras_vit.training.fit import fit
    from keras_vit.training.starting_model import make_model
    from keras_vit.training.training_data import load_training_data

    print(f"{setting.name}, seed {seed}")
    recipe = dataclasses.replace(study.recipe, **setting.changes, seed=seed)
    data = load_training_data(recipe, study.data, fraction=setting.fraction, **data_options(study))
    num_images = data[0].num_examples
    # As many steps and evaluations for each part: epochs are cut by this number.
    data[0].num_examples = find_source(study.data, "train", **data_options(study)).num_examples
    num_classes = len(data[0].class_names)
    model = make_model(recipe, setting.model, num_classes)
    facts = {"model": setting.model, "data": study.data, "split": "train"}
    facts |= {"classes": study.classes, "num_examples": num_images}
    if setting.fraction < 1:
        facts["fraction"] = setting.fraction
    fit(recipe, model, data, run_directory(study, setting, seed), facts, resume=True)
    epochs, steps = recipe.epoch_lengths(data[0].num_examples)
    exaflops = count_training_exaflops(
        find_variant(setting.model),
        epochs * steps * recipe.batch_size,
        1,
        num_classes,
        recipe.image_size,
        pooling=recipe.pooling,
    )
    return recipe, model, num_images, exaflops


def measure_last(study, setting, seed):
    """Compute of a run, and the accuracy of its last model on the test split."""
    recipe, model, _, exaflops = train_setting(study, setting, seed)
    return {"exaflops": exaflops, "accuracy": _test_accuracy(study, model, recipe)}


def measure_best(study, setting, seed):
    """Images and compute of a run, and what its best model is worth on test data.

    The best is that of the highest validation accuracy: early stopping, as in section 4.3.
    """
    from keras_vit.evaluation.fewshot import evaluate_fewshot
    from keras_vit.training.runs.saved_models import load_trained

    recipe, _, num_images, exaflops = train_setting(study, setting, seed)
    best = load_trained(run_directory(study, setting, seed))
    fewshot = evaluate_fewshot(
        best,
        study.fewshot_data or study.data,
        shots=(study.shots,),
        batch_size=recipe.batch_size,
        classes=study.fewshot_classes if study.fewshot_data else study.classes,
        data_dir=study.data_dir,
    )
    return {
        "images": num_images,
        "exaflops": exaflops,
        "accuracy": _test_accuracy(study, best, recipe),
        "fewshot": sum(fewshot.values()) / len(fewshot),
    }


def check_data(study, settings):
    """Finds what a study needs of its datasets, before it trains for hours.

    Raises:
        ValueError: if something is not there.
    """
    from keras_vit.data.datasets import find_source, load
    from keras_vit.training.training_data import load_training_data

    smallest = min(setting.fraction for setting in settings)
    load_training_data(study.recipe, study.data, fraction=smallest, **data_options(study))
    size, batch_size = study.recipe.image_size, study.recipe.batch_size
    load(study.data, "test", size, batch_size, **data_options(study))
    if study.fewshot_data:
        options = {"classes": study.fewshot_classes, "data_dir": study.data_dir}
        for split in ("train", "test"):
            find_source(study.fewshot_data, split, **options)


def data_options(study):
    """What a study's dataset is loaded with."""
    return {"classes": study.classes, "data_dir": study.data_dir}


def run_directory(study, setting, seed):
    """Where a run is kept."""
    return study.workdir / re.sub(r"\W+", "_", f"{setting.name}, seed {seed}")


def _test_accuracy(study, model, recipe):
    from keras_vit.data.datasets import load
    from keras_vit.evaluation.classification import evaluate

    options = data_options(study)
    test = load(study.data, "test", recipe.image_size, recipe.batch_size, **options)
    return evaluate(model, test)["accuracy"]
