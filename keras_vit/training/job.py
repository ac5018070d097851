"""Training jobs: load the data, build the model under the strategy's scope, fit."""

import contextlib
import dataclasses
import gc
import logging
import os
import pathlib
from collections.abc import Sequence

import keras

from keras_vit.checkpoints.runs import LAST_MODEL, read_run
from keras_vit.checkpoints.trained import (
    absolute_model_name,
    check_model_path,
    model_digest,
)
from keras_vit.core.arguments import grid_size
from keras_vit.data.sources.folder import describe_left_out
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.models.variants import find_variant, is_variant
from keras_vit.training import distribution
from keras_vit.training.distillation import load_teacher
from keras_vit.training.fit import fit
from keras_vit.training.recipes import Recipe, find_recipe
from keras_vit.training.recipes.checks import check_accumulation
from keras_vit.training.runs.announcement import announce
from keras_vit.training.runs.run import HANDLING, check_new, check_same_recipe
from keras_vit.training.runs.saved_models import check_data_path
from keras_vit.training.starting_model import (
    check_keeps_head,
    check_shards,
    explaining_shards,
    make_model,
)
from keras_vit.training.training_data import load_training_data


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished training run.

    Args:
        model: the trained `keras.Model`; with averages of its weights if the recipe has them.
        history: the metrics of the epochs, a list of dictionaries.
        workdir: `pathlib.Path` of the run's directory.
        recipe: the resolved `Recipe`.
    """

    model: keras.Model
    history: list
    workdir: pathlib.Path
    recipe: Recipe


def train(
    recipe: Recipe | str,
    model: keras.Model | str | os.PathLike,
    data: str,
    workdir: str | os.PathLike,
    *,
    classes: Sequence[str] | None = None,
    fraction: float = 1.0,
    split: str = "train",
    validation: str | None = "validation",
    data_dir: str | os.PathLike | None = None,
    exclude: str | os.PathLike | None = None,
    cache: str | os.PathLike | None = None,
    max_skipped: float = 0.1,
    dtype: str | None = None,
    strategy: str = "auto",
    model_shards: int | None = None,
    resume: bool = False,
    save_steps: int = 1000,
    keep: int = 2,
    facts: dict | None = None,
    epoch_examples: int | None = None,
    teacher: keras.Model | str | os.PathLike | None = None,
    keep_head: bool = False,
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] = (),
    verbose: int | str = "auto",
) -> Run:
    """Train a model on a dataset by a recipe, in a directory.

    `fit` describes the files in the directory. A warning is logged if the splits of a folder or of
    TFRecords share images, or lack classes.

    Args:
        recipe: a `Recipe`, or the name of a row of `RECIPES`.
        model: name of a variant, or path of a `.keras` file, a run's directory or a checkpoint, as
            in `make_model`; or a built `keras.Model` with a head for the classes. A built model is
            trained in the strategy's scope in which `train` is called, if any.
        data: name of a dataset, as in `keras_vit.data.load`.
        workdir: path of a new or empty directory; or of the run to resume.
        classes: names of the classes to keep; all by default.
        fraction: share of the training images to train on, in (0, 1].
        split: name of the split to train on; several are joined by `+`.
        validation: name of the split to validate on; `None` for none.
        data_dir: directory of TensorFlow Datasets.
        exclude: path of a file with ids of examples to leave out.
        cache: `"memory"`, or path of a new file, to keep encoded training images.
        max_skipped: greatest share of images that may be skipped because they cannot be decoded.
        dtype: dtype policy of a new model; `None` for float32, or the policy of a `.keras` file.
        strategy: name of a strategy, as in `keras_vit.training.distribution.strategy`.
        model_shards: number of parts of the strategy `"model_parallel"`; one per device by default.
        resume: whether to resume the run in `workdir`; if there is none, it begins.
        save_steps: number of batches between two saved states; each epoch ends with one too.
        keep: number of states to keep.
        facts: dictionary of what else to record in `run.json`.
        epoch_examples: number of examples in one pass, which sets the number of steps; by default
            the number of training images. With the number of the whole dataset, training on a
            share of it takes the same number of steps.
        teacher: path of a trained model of the same classes, as in `make_model`, or a built model:
            the model learns its logits as the recipe's `distillation`, `temperature` and
            `label_weight` say. `None` for none.
        keep_head: whether a trained model keeps its head, which must be of the same classes in the
            same order; by default it gets a new one.
        callbacks: a further callback of `model.fit`, or several, such as a
            `keras_vit.training.callbacks.MeasureRegularly`, whose measurements are part of the run.
        verbose: as in `model.fit`; `"auto"` for 1 on a terminal and 2 elsewhere.

    Returns:
        A `Run`.

    Raises:
        ValueError: if an argument is wrong; or as `load_training_data`, `make_model` and `fit`.

    Example:
    >>> recipe = keras_vit.training.RECIPES["digits_finetune"]
    >>> recipe = dataclasses.replace(recipe, image_size=8, steps=8, warmup_steps=2)
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, num_classes=3,
    ...     image_size=8)
    >>> run = keras_vit.training.train(
    ...     recipe, model, "digits", tmp_path / "run", classes=("7", "8", "9"))
    8/8 - ...
    >>> 0 <= run.history[-1]["val_accuracy"] <= 1
    True
    """
    recipe = find_recipe(recipe)
    check_accumulation(recipe, dtype)
    is_built = isinstance(model, keras.Model)
    if is_built and (dtype, strategy, model_shards, keep_head) != (None, "auto", None, False):
        raise ValueError(
            "`dtype`, `strategy`, `model_shards` and `keep_head` are for a model that is not built "
            f"yet. Received: dtype={dtype!r}, strategy={strategy!r}, model_shards={model_shards}, "
            f"keep_head={keep_head} and the model {model.name!r}"
        )
    if is_built and model.input_shape[1:3] not in ((recipe.image_size,) * 2, (None, None)):
        raise ValueError(
            "`image_size` of the recipe must be the size of the model's images; `keras_vit.resize` "
            f"changes a model. Received: image_size={recipe.image_size}, a model of "
            f"{model.input_shape[1:3]}"
        )
    if isinstance(callbacks, keras.callbacks.Callback):
        callbacks = (callbacks,)
    workdir = pathlib.Path(workdir).expanduser()
    begun = read_run(workdir / LAST_MODEL) if resume else {}
    if "recipe" in begun:
        # `fit` compares all settings, but only after the data are read.
        check_same_recipe(begun, recipe)
    if recipe.steps is not None:
        # A wrong warm-up is one whatever the number of images is.
        recipe.epoch_lengths(num_examples=1)
    # A bucket has an address.
    if data_dir is not None and "://" not in str(data_dir):
        data_dir = str(pathlib.Path(data_dir).expanduser().resolve())
    handling = {"save_steps": save_steps, "keep": keep, "max_skipped": max_skipped}
    handling["data_dir"] = data_dir
    facts = {
        "model": model.name if is_built else absolute_model_name(model),
        "data": absolute_name(data),
        "split": split,
        "classes": classes,
        "exclude": exclude and str(pathlib.Path(exclude).expanduser().resolve()),
        "dtype": dtype,
        **({"fraction": fraction} if fraction < 1 else {}),
        **({"strategy": strategy} if strategy != "auto" else {}),
        **({"model_shards": model_shards} if model_shards is not None else {}),
        **({"keep_head": True} if keep_head else {}),
        **{name: value for name, value in handling.items() if value != HANDLING[name]},
        **(facts or {}),
    }
    if teacher is not None:
        is_named = not isinstance(teacher, keras.Model)
        facts["teacher"] = absolute_model_name(teacher) if is_named else teacher.name
    # The model of an earlier run may be in a reference cycle and take the memory of this one.
    gc.collect()
    with _scope(is_built, strategy, model_shards):
        if distribution.is_first_process():
            check_new(workdir, resume)
        if not is_built:
            _check_starting_model(recipe, model, begun)
            facts |= model_digest(model)
        if keep_head:
            check_keeps_head(model, recipe.loss)
        if begun:
            check_data_path(data)
        # Before the data are read, and before the model is made, which sets the seed.
        with explaining_shards("teacher"):
            teacher = load_teacher(teacher)
        datasets = load_training_data(
            recipe,
            data,
            classes,
            fraction,
            cache,
            split,
            validation,
            data_dir=data_dir,
            exclude=exclude or (),
            max_skipped=max_skipped,
        )
        examples = epoch_examples or datasets[0].num_examples
        announce(recipe, *datasets, model, examples, keep_head)
        if epoch_examples is not None:
            datasets[0].num_examples = epoch_examples
        if datasets[0].left_out and distribution.is_first_process():
            logging.getLogger("keras_vit").info("%s", describe_left_out(datasets[0].left_out))
        if not is_built:
            names = datasets[0].class_names
            model = make_model(recipe, model, len(names), dtype, names if keep_head else None)
        options = {"resume": resume, "save_steps": save_steps, "keep": keep, "exclude": exclude}
        options |= {"teacher": teacher, "callbacks": callbacks, "verbose": verbose}
        history = fit(recipe, model, datasets, workdir, facts, **options)
    return Run(model, history, workdir, recipe)


def _check_starting_model(recipe, model, begun):
    """Check that there is a model before the data are read; `begun` is `run.json` of the run."""
    try:
        check_model_path(model)
        if is_variant(model):
            # The patches must tile the recipe's images.
            grid_size((recipe.image_size,) * 2, find_variant(model).stride)
    except ValueError as error:
        if not begun:
            raise
        ended = " The run has ended: there is nothing to resume." if begun.get("has_ended") else ""
        raise ValueError(
            "`model` (`--model`) must be the model that the run was begun with; if it has moved, "
            f"give its new path.{ended} Received: model={str(model)!r} ({error})"
        ) from error
    if is_variant(model):
        check_shards(find_variant(model))


def _scope(is_built, strategy, model_shards):
    if is_built:
        return contextlib.nullcontext()
    return distribution.strategy(strategy, model_shards).scope()
