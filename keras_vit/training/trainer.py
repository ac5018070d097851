"""`train` loads the data, builds the model and trains it by a recipe, in a directory."""

import contextlib
import dataclasses
import gc
import inspect
import json
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.checkpoints.named_models import (
    absolute_model_name,
    check_model_path,
    load_trained,
    model_digest,
)
from keras_vit.checkpoints.run_files import RUN_FILE, find_model
from keras_vit.core.arguments import check_integer
from keras_vit.core.text import name_some
from keras_vit.data.dataset import Dataset
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.pipeline import load
from keras_vit.data.processes import process
from keras_vit.data.sources.folder import describe_left_out
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.data.sources.named_datasets import changes_that_keep_labels, check_augmentation
from keras_vit.data.statistics import MEASURED_RANGES, measure_range
from keras_vit.models.image_model import image_spec_of
from keras_vit.training import distribution
from keras_vit.training.callbacks import MeasureRegularly, assign_averages
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipe import Recipe, find_recipe
from keras_vit.training.resumable_fit import (
    EXCLUDED_FILE,
    SKIPPED_FILE,
    STATES,
    ResumableFit,
    find_state,
    open_run,
)
from keras_vit.training.starting_model import make_model, pixels_of
from keras_vit.training.states import States
from keras_vit.training.tasks import make_task

# Arguments of `train` that `run.json` does not record.
NOT_RECORDED = ("workdir", "resume", "callbacks", "verbose")
# Arguments of `train` that need `data` to be the name of a dataset.
DATASET_OPTIONS = ("classes", "fraction", "split", "exclude", "cache", "max_skipped", "data_dir")
# From a recipe's `flip` to the argument `flip` of `load`.
FLIPS = {"never": False, "random": True, "always": "always"}


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished training run.

    Args:
        model: the trained `keras.Model`, with the EMA of its weights if the recipe has one. Compile
            it before you call its `evaluate` or `fit`.
        history: list of dictionaries, the metrics of each epoch.
        workdir: `pathlib.Path` of the run's directory.
        recipe: the `Recipe`.
    """

    model: keras.Model
    history: list
    workdir: pathlib.Path
    recipe: Recipe


def train(
    recipe: Recipe | str,
    model: keras.Model | str | os.PathLike,
    data: Any,
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
    metadata: dict | None = None,
    epoch_examples: int | None = None,
    teacher: keras.Model | str | os.PathLike | None = None,
    keep_head: bool = False,
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] = (),
    verbose: int | str = "auto",
) -> Run:
    """Train a model on a dataset by a recipe, in a directory.

    The directory contains `run.json` (the arguments and the class names), `metrics.jsonl` (one line
    per epoch and per measurement of `callbacks`), `tensorboard/` (loss, accuracy, learning rate,
    norm of the gradients, images per second, share of the time spent waiting for data),
    `best.keras` (the model with the best validation accuracy, or the best `monitor` of the recipe),
    `last.keras`, `averaged.keras` if the recipe has an EMA, `predictor.keras` for masked patches,
    `states/` to resume from, and `skipped.txt` if images could not be decoded.

    Args:
        recipe: a `Recipe`, or a name in `RECIPES`.
        model: name of a variant, or path of a `.keras` file, a run's directory or a checkpoint, as
            in `make_model`; or a built `keras.Model` with a head for the classes. A built model is
            trained in the scope of the strategy in which `train` is called. If the recipe has an
            EMA, the model has the EMA of its weights after the training.
        data: name of a dataset, as in `keras_vit.data.load`; or a dataset that `load` returns, or
            its `info.dataset`; or a pair of datasets `(train, validation)`, where `validation` may
            be `None`. A dataset keeps its preprocessing. The recipe sets its batch size, its order,
            and whether its labels are soft labels. With several processes, it must be the share of
            this process.
        workdir: path of a new or empty directory, or of the directory of the run to resume.
        classes: names of the classes to keep; all by default.
        fraction: share of the training images to train on, in (0, 1].
        split: name of the split to train on; several names are joined by `+`.
        validation: name of the split to validate on; `None` for no validation.
        data_dir: directory of TensorFlow Datasets.
        exclude: path of a file with the ids of examples to leave out.
        cache: `"memory"`, or path of a new file, to keep the encoded training images in; `None` to
            read them again in each epoch.
        max_skipped: largest share of images that may be skipped because they cannot be decoded.
        dtype: dtype policy of the model; `None` for float32, or for the policy of a `.keras` file.
        strategy: name of a strategy, as in `keras_vit.training.distribution.strategy`.
        model_shards: number of devices among which the strategy `"model_parallel"` divides the
            model; by default all devices of a process.
        resume: whether to resume the run in `workdir`; if `workdir` has no run, a new run begins. A
            resumed run ends with the same weights as an uninterrupted run.
        save_steps: number of batches after which a state is saved. A state is also saved after each
            epoch.
        keep: number of states to keep.
        metadata: dictionary of further values to record in `run.json`.
        epoch_examples: number of examples in one pass, which sets the number of steps; by default
            the number of training images. With a `fraction` of the images, pass the number of all
            images to train for as many steps as on all.
        teacher: a trained model of the same classes, whose logits the model learns: a path as in
            `make_model`, or a built model. The recipe's `distillation`, `temperature` and
            `label_weight` apply. `None` for no teacher.
        keep_head: whether a trained model keeps its head, whose classes must be those of the
            dataset in the same order; by default the model gets a new head.
        callbacks: a callback for `model.fit`, or a list of callbacks. Their `model` may be another
            model with the same layers, which leaves out unused tokens. The measurements of a
            `keras_vit.training.callbacks.MeasureRegularly` are saved and resumed with the run.
        verbose: as in `model.fit`; `"auto"` for 1 on a terminal and 2 elsewhere.

    Returns:
        A `Run`.

    Raises:
        ValueError: if an argument is wrong, `workdir` contains other files, the run to resume has
            other settings or images, the model and the dataset have different classes, too many
            images cannot be decoded, or the loss is not finite; or as in `load_training_data` and
            `make_model`.
        OSError: if `workdir` cannot be written to. Files that were saved before remain.
        SystemExit: after SIGTERM, when the state has been saved.

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
    if isinstance(callbacks, keras.callbacks.Callback):
        callbacks = (callbacks,)
    arguments = {**locals(), "recipe": find_recipe(recipe)}
    recipe, datasets = arguments["recipe"], _as_datasets(data)
    is_built = isinstance(model, keras.Model)
    _check_arguments(arguments, is_built, datasets is not None)
    settings, may_differ = _settings(arguments, datasets)
    # Free the memory of an earlier run's model, which a reference cycle may keep alive.
    gc.collect()
    with contextlib.ExitStack() as stack:
        if not is_built:
            stack.enter_context(distribution.strategy(strategy, model_shards).scope())
        run = stack.enter_context(open_run(workdir, settings, may_differ, resume))
        # Load the teacher before `make_model` sets the seed, so that it does not change the run.
        if teacher is not None and not isinstance(teacher, keras.Model):
            teacher = load_trained(teacher)
        data = _for_recipe(recipe, *datasets) if datasets else _load_named(arguments, run)
        lengths = recipe.epoch_lengths(epoch_examples or data[0].num_examples)
        _log_plan(recipe, data, model.name if is_built else find_model(model), lengths)
        if not is_built:
            names = data[0].class_names
            model = make_model(recipe, model, len(names), dtype, names if keep_head else None)
        if (used := getattr(data[0].maker, "preprocessing", None)) is not None:
            pixels = {name: getattr(used.image_spec, name) for name in ("channels", "value_range")}
            model.image_spec = dataclasses.replace(image_spec_of(model), **pixels)
        fit_options = {"save_steps": save_steps, "callbacks": callbacks, "verbose": verbose}
        fit = _prepare(recipe, model, data, run, teacher, lengths, keep, fit_options)
        state = find_state(workdir, run.settings["id"]) if resume else None
        if state is None and keep_head:
            _log_initial_metrics(fit)
        fit.fit(state)
        run.add({"has_ended": True})
        assign_averages(fit.task.model)
        if fit.task.finish is not None:
            fit.task.finish(model)
        if not run.recorded.get("has_ended"):
            _report_skipped(run, fit.train, fit.validation)
    return Run(model, fit.history, pathlib.Path(workdir).expanduser(), recipe)


def recorded_arguments(workdir):
    """Return `(arguments, measurements)` of the run in a directory, to call `train` again.

    `arguments` is a dictionary of arguments of `train`. `measurements` is a list of the settings of
    the run's few-shot measurements.

    Raises:
        ValueError: if `workdir` has no run, or the run was begun with Python objects as arguments.
    """
    file = pathlib.Path(workdir).expanduser() / RUN_FILE
    run = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if "recipe" not in run or run["objects"]:
        names = ", ".join(f"`{name}`" for name in run.get("objects", ()))
        content = f"a run with Python objects as {names}" if names else "no run"
        raise ValueError(
            "Only a run whose arguments are names and paths can be resumed by its directory; "
            "resume other runs by `keras_vit.training.train(..., resume=True)`. "
            f"Received: {str(workdir)!r}, with {content}"
        )
    names = inspect.signature(train).parameters
    return {name: run[name] for name in names if name in run}, run["measurements"]


def load_training_data(
    recipe: Recipe,
    name: str,
    classes: Sequence[str] | None = None,
    fraction: float = 1.0,
    cache: str | os.PathLike | None = None,
    split: str = "train",
    validation: str | None = "validation",
    **options: Any,
) -> tuple[Dataset, Dataset | None]:
    """Load the training and validation splits of a dataset for a recipe.

    For datasets whose labels are counts or positions, crops and flips that would make the labels
    wrong are left out, which is logged. An augmentation that would make them wrong is an error.
    Each of several processes (`keras_vit.training.distribution`) loads its share of the images.

    Args:
        recipe: a `Recipe`.
        name: name of the dataset, as in `load`.
        classes: as in `load`.
        fraction: as in `load`, for the training split.
        cache: as in `load`, for the training split.
        split: name of the split to train on, as in `load`.
        validation: name of the split to validate on; `None` for no validation.
        **options: as in `load`, for both splits.

    Returns:
        `(train, validation)`: two `Dataset`s, whose method `batches()` returns what `load` returns;
        or a `Dataset` and `None`.

    Raises:
        ValueError: if the recipe's batches cannot be divided among the replicas, or its
            augmentation would make labels wrong; or as in `load`.
    """
    check_augmentation(name, recipe.augmentation)
    options |= {
        "image_size": recipe.image_size,
        "batch_size": recipe.batch_size,
        "classes": classes,
        "upright": recipe.upright,
        "shard": process(),
    }
    crops = (recipe.min_crop_area, FLIPS[recipe.flip], recipe.random_crop_from)
    train = load(
        name,
        split,
        training=True,
        # With `freeze`, features are computed from whole images, without crops and flips.
        **({} if recipe.freeze else changes_that_keep_labels(name, *crops)),
        augmentation=recipe.augmentation,
        cache=cache,
        fraction=fraction,
        **options,
    )
    held_out = None if validation is None else load(name, validation, **options).info.dataset
    return _for_recipe(recipe, train.info.dataset, held_out)


def _check_arguments(arguments, is_built, has_datasets):
    """Raise an error if an option does not apply to a built model or a loaded dataset."""
    for name in ("save_steps", "keep"):
        check_integer(name, arguments[name], 1)
    if not is_built:
        check_model_path(arguments["model"])
    defaults = inspect.signature(train).parameters
    unbuilt = ("dtype", "strategy", "model_shards", "keep_head") if is_built else ()
    for name in (*unbuilt, *(DATASET_OPTIONS if has_datasets else ())):
        if arguments[name] != defaults[name].default:
            kind = "a model that is not built yet" if name in unbuilt else "the name of a dataset"
            raise ValueError(f"`{name}` is for {kind}. Received: {name}={arguments[name]!r}")


def _settings(arguments, datasets):
    """Return the settings that `run.json` records, and the names of settings that may change."""
    recipe, model, teacher = (arguments[name] for name in ("recipe", "model", "teacher"))
    measurements = [c.settings for c in arguments["callbacks"] if isinstance(c, MeasureRegularly)]
    # Arguments that are Python objects: `keras-vit resume` cannot pass them again.
    objects = {
        "model": isinstance(model, keras.Model),
        "data": datasets is not None,
        "teacher": isinstance(teacher, keras.Model),
        "callbacks": len(arguments["callbacks"]) > sum("data" in each for each in measurements),
    }
    classes = arguments["classes"]
    settings = {
        **{name: value for name, value in arguments.items() if name not in NOT_RECORDED},
        **{name: _absolute(arguments[name]) for name in ("data_dir", "exclude", "cache")},
        "recipe": dataclasses.asdict(recipe),
        "model": model.name if objects["model"] else absolute_model_name(model),
        "data": None if objects["data"] else absolute_name(arguments["data"]),
        # Sorted, because the order has no effect.
        "classes": classes and sorted(classes),
        "metadata": arguments["metadata"] or {},
        "teacher": teacher.name if objects["teacher"] else teacher and absolute_model_name(teacher),
        "measurements": measurements,
        "objects": [name for name, is_object in objects.items() if is_object],
        **({} if objects["model"] else model_digest(model)),
    }
    may_differ = ["teacher"] if teacher is not None else []
    may_differ += ["model"] if objects["model"] or "model_digest" in settings else []
    return settings, may_differ


def _absolute(path):
    """Return an absolute path; the address of a file in a bucket is not changed."""
    if path in (None, "memory") or "://" in str(path):
        return path
    return str(pathlib.Path(path).expanduser().absolute())


def _load_named(arguments, run):
    """Load the training and validation `Dataset`s by name.

    The ids of excluded examples are copied to the run's directory first. If the recipe asks for a
    measured range, it is measured in a new run, and read from the record of a resumed run.
    """
    recipe, exclude, file = arguments["recipe"], arguments["exclude"], run.path / EXCLUDED_FILE
    if exclude is not None and not file.exists():
        run.write(file.name, pathlib.Path(exclude).expanduser().read_text(encoding="utf-8"))
    options = {name: arguments[name] for name in ("validation", *DATASET_OPTIONS)}
    options["exclude"] = () if exclude is None else file
    options["data_dir"] = _absolute(arguments["data_dir"])
    options["image_spec"] = spec = pixels_of(recipe, arguments["model"])
    if recipe.value_range in MEASURED_RANGES:
        value_range = run.recorded.get("value_range")
        if value_range is None:
            uncached = {**options, "validation": None, "cache": None}
            source = load_training_data(recipe, arguments["data"], **uncached)[0].source
            value_range = measure_range(source, spec.channels, recipe.value_range)
        run.add({"value_range": value_range})
        options["image_spec"] = dataclasses.replace(spec, value_range=value_range)
    return load_training_data(recipe, arguments["data"], **options)


def _prepare(recipe, model, data, run, teacher, lengths, keep, fit_options):
    """Compile the task of a recipe, record its metadata, and return the `ResumableFit`.

    When a run is resumed, `run.add` raises an error if the run has recorded other metadata.
    """
    task = make_task(recipe, model, *data, teacher)
    options = getattr(model, "options", None)
    metadata = {
        **task.metadata,
        "num_examples": data[0].num_examples,
        # The preprocessing, which the recipe does not determine if the dataset is an object.
        "makers": [repr(each.maker) for each in data if each is not None],
        "images": _image_digests(*data) if distribution.is_first_process() else {},
        "options": options
        and {n: v for n, v in vars(options).items() if n not in options.names("runtime")},
    }
    run.add(metadata)
    run.add({"id": run.identity})
    epochs, updates_per_epoch = lengths
    # Make the optimizer for the student: the teacher in a `Distiller` may have another dtype.
    trained = task.model if teacher is None else model
    task.model.compile(
        optimizer=make_optimizer(recipe, trained, epochs * updates_per_epoch),
        loss=task.loss,
        weighted_metrics=list(task.metrics),
    )
    # Build the optimizer now: otherwise TensorFlow would trace the first step twice.
    task.model.optimizer.build(task.model.trainable_variables)
    batches_per_epoch = updates_per_epoch * recipe.accumulation_steps
    states = States(run.path / STATES, keep)
    return ResumableFit(recipe, task, model, run, epochs, batches_per_epoch, states, **fit_options)


def _image_digests(train, validation):
    """Return digests of the images of a run. Log a warning if both datasets share images."""
    if validation is None:
        return {"training": train.source.digest()}
    sources = train.source, validation.source
    ids = [set(map(source.find_id, source.numbers.tolist())) for source in sources]
    if shared := sorted(set.intersection(*ids)):
        logging.getLogger("keras_vit").warning(
            "%d of the %d validation images, by which the best model is chosen, are also training "
            "images: %s",
            len(shared),
            len(ids[1]),
            name_some(shared),
        )
    return {"training": train.source.digest(), "validation": validation.source.digest()}


def _as_datasets(data):
    """Return the argument `data` of `train` as `(train, validation)`; `None` if it is a name."""
    pair = data if isinstance(data, tuple) else (data, None)
    if not hasattr(pair[0], "info") and not isinstance(pair[0], Dataset):
        return None
    return tuple(each.info.dataset if hasattr(each, "info") else each for each in pair)


def _for_recipe(recipe, train, validation):
    """Return the datasets with the recipe's batch size, seed and kind of labels.

    The training dataset is shuffled and repeated.
    """
    if any(each is not None and each.shard != process() for each in (train, validation)):
        raise ValueError(
            "`data` must be the share of this process; `shard=(index, count)` loads it. "
            f"Received: shard={train.shard} instead of {process()}"
        )
    replicas = distribution.num_replicas()
    if recipe.batch_size % (recipe.accumulation_steps * replicas):
        raise ValueError(
            f"`batch_size` must be a multiple of {recipe.accumulation_steps * replicas}, the "
            f"number of replicas ({replicas}) times `accumulation_steps`. "
            f"Received: batch_size={recipe.batch_size}"
        )
    size = recipe.batch_size // recipe.accumulation_steps // process()[1]
    is_soft = recipe.needs_soft_labels or train.one_hot
    shared = {"batch_size": size, "seed": recipe.seed, **({"one_hot": True} if is_soft else {})}
    train = dataclasses.replace(
        train,
        training=True,
        repeat=True,
        balanced=recipe.class_balance == "sampling",
        **shared,
    )
    return train, validation and dataclasses.replace(validation, repeat=False, **shared)


def _log_plan(recipe, data, model, lengths):
    """Log the images, the classes, the starting model and the number of steps of a run."""
    if not distribution.is_first_process():
        return
    log, (train, validation) = logging.getLogger("keras_vit").info, data
    held_out = 0 if validation is None else validation.num_examples
    names = train.class_names
    log(
        "%s images to train on, %s to validate on; %d classes: %s",
        f"{train.num_examples:,}",
        f"{held_out:,}",
        len(names),
        name_some(names),
    )
    if train.source.left_out:
        log("%s", describe_left_out(train.source.left_out))
    epochs, updates = lengths
    log(
        "%s: %s steps of %s images, in %d epochs; each batch in %d parts, on %d replicas",
        model,
        f"{epochs * updates:,}",
        f"{recipe.batch_size:,}",
        epochs,
        recipe.accumulation_steps,
        distribution.num_replicas(),
    )


def _log_initial_metrics(fit):
    """Log the validation metrics of a starting model that keeps its head."""
    if fit.validation is None:
        return
    with explaining_errors(fit.validation):
        metrics = fit.task.model.evaluate(fit.evaluated, return_dict=True, verbose=0)
    text = " - ".join(f"val_{name}: {value:.4f}" for name, value in metrics.items())
    if distribution.is_first_process():
        logging.getLogger("keras_vit").info("before the first step: %s", text)


def _report_skipped(run, *datasets):
    """Log which images were skipped, and write them with the reasons to `skipped.txt`."""
    lines = []
    for skipped in [batches.info.skipped for batches in datasets if batches is not None]:
        if len(skipped):
            logging.getLogger("keras_vit").warning("%s", skipped)
        lines += [f"{id}\t{reason}\n" for id, reason in skipped.reasons.items()]
    if lines:
        run.write(SKIPPED_FILE, "".join(lines))
