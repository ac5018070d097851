"""Train by a recipe, through `model.fit`, and keep the run in a directory."""

import contextlib
import logging
import pathlib
import shutil
import tempfile

from keras_vit.checkpoints.runs import BEST_MODEL, LAST_MODEL, read_run
from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.data.skipped import explaining_errors
from keras_vit.training.callbacks.averaging import assign_averages
from keras_vit.training.callbacks.regular import MeasureRegularly
from keras_vit.training.distribution import check_batch, is_first_process
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.runs.resumable import ResumableFit
from keras_vit.training.runs.run import (
    EXCLUDED_FILE,
    SKIPPED_FILE,
    STATES,
    check_new,
    discard,
    locked,
    open_run,
    record_end,
    record_places,
    write_text,
)
from keras_vit.training.runs.state import States, check_same_model, recorded_options
from keras_vit.training.tasks import make_task
from keras_vit.training.training_data import for_evaluation, image_digests


def fit(
    recipe,
    model,
    data,
    workdir,
    facts=None,
    resume=False,
    save_steps=1000,
    keep=2,
    exclude=None,
    teacher=None,
    callbacks=(),
    verbose="auto",
):
    """Train a model by a recipe, and keep the run in a directory.

    The directory contains `run.json` (the resolved recipe and the class names), `metrics.jsonl`
    (one line per epoch, and per measurement of `callbacks`), `tensorboard/` (loss, accuracy,
    learning rate, norm of the gradients, images per second, share of the time spent waiting for
    data), `best.keras` (by validation accuracy), `last.keras`, `averaged.keras` if the recipe
    averages weights, `states/` to resume from, and `skipped.txt` if images could not be decoded.

    If the model was built under the scope of a `keras_vit.training.distribution.strategy`, call
    `fit` in that scope.

    Args:
        recipe: a `Recipe`.
        model: a built model with a head for the dataset's classes. It is compiled and trained. If
            the recipe averages weights, it has the averages at the end. For masked patches the
            model needs no head, and `predictor.keras` contains its weights too.
        data: `(train, validation)`, datasets of `load_training_data`. If the second is `None`, the
            best model is the last.
        workdir: path of a new or empty directory.
        facts: dictionary of what else to record in `run.json`.
        resume: whether to resume the run in `workdir`; if there is none, it begins. A resumed run
            ends with the weights that it would have had without the stop.
        save_steps: number of batches between two saved states; each epoch ends with one too.
        keep: number of states to keep.
        exclude: path of the file of ids that were left out of the data, to be copied to
            `excluded.txt`; or `None`.
        teacher: a trained model of the same classes, whose logits the model learns as the recipe
            says; or `None`. It is frozen, and not saved.
        callbacks: further callbacks of `model.fit`. The measurements of a
            `keras_vit.training.callbacks.MeasureRegularly` are part of the run, and resumed.
        verbose: as in `train`.

    Returns:
        The metrics of the epochs, a list of dictionaries.

    Raises:
        ValueError: if the directory holds something else, the head and the dataset have different
            classes, the model does not return logits, too many images cannot be decoded, the loss
            is not finite, or a run was begun with other images than it is resumed with.
        OSError: if the directory cannot be written to; what was saved before is still there.
        SystemExit: after SIGTERM, when the state has been saved.
    """
    check_batch(recipe)
    check_integer("save_steps", save_steps, 1)
    check_integer("keep", keep, 1)
    check_choice("verbose", verbose, ("auto", 0, 1, 2))
    measurements = _check_callbacks(recipe, callbacks)
    task = make_task(recipe, model, data, teacher)
    epochs, updates_per_epoch = recipe.epoch_lengths(task.train.num_examples)
    state = _find_state(workdir, keep) if resume else None
    options = recorded_options(model)
    if state is not None:
        check_same_model(options, state)
    with own_directory(workdir) as own:
        check_new(own, resume)
        images = image_digests(*data) if is_first_process() else {}
        facts = {**task.facts, **(facts or {}), **measurements, "images": images}
        # A teacher may have other dtypes.
        trained = task.model if teacher is None else model
        task.model.compile(
            optimizer=make_optimizer(recipe, trained, epochs * updates_per_epoch),
            loss=task.loss,
            weighted_metrics=list(task.metrics),
        )
        # Otherwise TensorFlow would trace the first step twice.
        task.model.optimizer.build(task.model.trainable_variables)
        made = open_run(own, recipe, facts, resume)
        run = ResumableFit(
            recipe,
            own,
            epochs,
            updates_per_epoch * recipe.accumulation_steps,
            save_steps,
            States(own / STATES, keep),
            read_run(own / LAST_MODEL),
            options,
            tuple(callbacks),
            verbose,
        )
        try:
            with locked(own):
                if made and exclude is not None:
                    shutil.copyfile(pathlib.Path(exclude).expanduser(), own / EXCLUDED_FILE)
                record_places(own, facts)
                if state is None and facts.get("keep_head"):
                    _log_initial_metrics(recipe, task)
                run.fit(task, model, state)
                record_end(own)
        except BaseException:
            # A run that failed before it saved anything leaves nothing in the way of the next.
            if run.states.last is None and not (own / LAST_MODEL).exists():
                discard(made)
            raise
        if not (own / BEST_MODEL).exists():
            logging.getLogger("keras_vit").warning(
                "%s is missing: no epoch since the run was resumed was better; use %s",
                *(own / BEST_MODEL, LAST_MODEL),
            )
        assign_averages(task.model)
        report_skipped(own, run.train, task.validation)
    return run.history


def _log_initial_metrics(recipe, task):
    """Log the validation metrics of a starting model that keeps its head."""
    if task.validation is None:
        return
    batch_size = recipe.batch_size // recipe.accumulation_steps
    with explaining_errors(task.validation):
        images = for_evaluation(task.validation, batch_size)
        metrics = task.model.evaluate(images, return_dict=True, verbose=0)
    found = " - ".join(f"val_{name}: {value:.4f}" for name, value in metrics.items())
    if is_first_process():
        logging.getLogger("keras_vit").info("before the first step: %s", found)


def _check_callbacks(recipe, callbacks):
    """Return what `run.json` records about the callbacks that measure the model."""
    measuring = [callback for callback in callbacks if isinstance(callback, MeasureRegularly)]
    if recipe.freeze and measuring:
        raise ValueError(
            "With `freeze` only the head is trained: the representation that is to be measured "
            f"does not change. Received: freeze=True and measurements, {measuring[0].settings}"
        )
    return {"measurements": [callback.settings for callback in measuring]} if measuring else {}


def _find_state(workdir, keep):
    """Return the last state of a run, or `None` if it was stopped before it saved one."""
    workdir = pathlib.Path(workdir).expanduser()
    state = States(workdir / STATES, keep).load()
    run = read_run(workdir / LAST_MODEL).get("id")
    if state is not None and state[1].get("run", run) != run:
        raise ValueError(
            "`workdir` must have the states of its own run. Received: workdir="
            f"{str(workdir)!r} of the run {run}, with states of {state[1]['run']}"
        )
    if state is None and (workdir / LAST_MODEL).exists():
        raise ValueError(
            "`workdir` must have the states of a run to be resumed. Received: workdir="
            f"{str(workdir)!r}, which has models and no states"
        )
    return state


@contextlib.contextmanager
def own_directory(workdir):
    """Yield the run's directory in the first process, and a temporary one in each other process."""
    if is_first_process():
        yield pathlib.Path(workdir).expanduser().resolve()
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
            yield pathlib.Path(own)


def report_skipped(workdir, *datasets):
    """Log which images were skipped, and write them with the reasons to `skipped.txt`."""
    lines = []
    for dataset in datasets:
        if dataset is None:
            continue
        if len(dataset.skipped):
            logging.getLogger("keras_vit").warning("%s", dataset.skipped)
        lines += [f"{id}\t{reason}\n" for id, reason in dataset.skipped.reasons.items()]
    if lines:
        write_text(pathlib.Path(workdir) / SKIPPED_FILE, "".join(lines))
