"""Training by recipe, through `model.fit`."""

import contextlib
import logging
import pathlib
import shutil
import tempfile

from keras_vit.models.origin import origin_of, set_origin
from keras_vit.training.averaging import assign_averages
from keras_vit.training.distribution import check_batch, is_first_process
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.runs.resumable import ResumableFit
from keras_vit.training.runs.run import (
    BEST_MODEL,
    EXCLUDED_FILE,
    LAST_MODEL,
    RUN_FILE,
    SKIPPED_FILE,
    STATES,
    check_new,
    discard,
    locked,
    open_run,
    write_text,
)
from keras_vit.training.runs.saved_models import images_trained_before, run_metadata
from keras_vit.training.runs.state import States, check_same_model, options_of
from keras_vit.training.runs.trained_on import (
    check_same_images,
    record_images,
    run_fingerprints,
    warn_of_overlap,
    warn_of_validation,
)
from keras_vit.training.tasks import make_task


def fit(
    recipe,
    model,
    data,
    workdir,
    facts=None,
    resume=False,
    save_steps=1000,
    keep=2,
    trained_before=None,
    exclude=None,
):
    """Trains a model by a recipe and keeps the run in a directory.

    The directory gets `run.json` (the resolved recipe and the class names), `metrics.jsonl` (a line
    an epoch), `tensorboard/` (loss, accuracy, learning rate, norm of the gradients, images a
    second, share of the time in which data were waited for), `best.keras` (by validation accuracy),
    `last.keras`, `averaged.keras` where the recipe averages weights, `states/` to go on from, and
    where images could not be decoded `skipped.txt`. `trained_on.jsonl` and `validated_on.jsonl`
    record the images.

    It is called inside of the scope of the strategy under which the model was built (`strategy` of
    `keras_vit.training.distribution`), if there is one.

    Args:
        recipe: a `Recipe`.
        model: a built model whose head has the dataset's classes. It is compiled and trained; at
            the end it has the averages of its weights where the recipe wants them. To predict
            masked patches it needs no head, and `predictor.keras` has its weights, too.
        data: `(train, validation)`, datasets of `load_training_data`. Without a validation split,
            `None`, the best model is the last.
        workdir: path of a new or empty directory.
        facts: dictionary of what else `run.json` shall say.
        resume: whether to go on where the same run in `workdir` was stopped, if it was begun. It
            ends with the weights that it would have had without the stop.
        save_steps: batches after which the state is saved, beside the ends of epochs.
        keep: how many states are kept.
        trained_before: `Fingerprints` of the images that the model was trained on before; `None`
            for what the run that it comes from records (`images_trained_before`).
        exclude: path of the file of the ids that were left out of the data, which is copied to
            `excluded.txt`; or `None`.

    Returns:
        The metrics of the epochs, a list of dictionaries.

    Raises:
        ValueError: if the directory already holds something else, the head and the dataset have
            different classes, the model does not return logits, too many images cannot be
            decoded, the loss is not finite, or a resumed run was begun with other images.
        OSError: if the directory cannot be written to; what was saved last is still there.
        SystemExit: after SIGTERM, when the state has been saved.
    """
    check_batch(recipe)
    for name, value in (("save_steps", save_steps), ("keep", keep)):
        if value < 1:
            raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
    task = make_task(recipe, model, data)
    epochs, updates_per_epoch = recipe.epoch_lengths(task.train.num_examples)
    state = _find_state(workdir, keep) if resume else None
    images = run_fingerprints(data) if is_first_process() else {}
    if images and state is not None:
        check_same_images(pathlib.Path(workdir).expanduser(), images, state)
    options = options_of(model)
    if state is not None:
        check_same_model(options, state)
    with own_directory(workdir) as own:
        check_new(own, resume)
        is_new = images and state is None
        before = _find_trained_before(model, trained_before, images) if is_new else None
        digests = [found.digest() for found in (*images.values(), before) if found is not None]
        made = open_run(own, recipe, {**task.facts, **(facts or {})}, resume, digests)
        task.model.compile(
            optimizer=make_optimizer(recipe, task.model, epochs * updates_per_epoch),
            loss=task.loss,
            weighted_metrics=list(task.metrics),
        )
        # Made while TensorFlow traces the first step, its variables would have it traced twice.
        task.model.optimizer.build(task.model.trainable_variables)
        run = ResumableFit(
            recipe, own, epochs, updates_per_epoch, save_steps, keep, run_metadata(own / LAST_MODEL)
        )
        run.options = options
        origin = origin_of(model)
        try:
            with locked(own):
                if made and exclude is not None:
                    shutil.copyfile(pathlib.Path(exclude).expanduser(), own / EXCLUDED_FILE)
                if state is not None:
                    run.images = state[1].get("images")
                elif images:
                    run.images = record_images(own, images, before)
                set_origin(model, own / RUN_FILE)
                run.fit(task, model, state)
        except BaseException:
            # What failed before it saved anything is no run, and not in the way of the next.
            if run.states.last is None and not (own / LAST_MODEL).exists():
                discard(made)
                set_origin(model, origin)
            raise
        if not (own / BEST_MODEL).exists():
            logging.getLogger("keras_vit").warning(
                "%s is missing: no epoch since the run was resumed was better; use %s",
                *(own / BEST_MODEL, LAST_MODEL),
            )
        assign_averages(task.model)
        report_skipped(own, run.train, task.validation)
    return run.history


def _find_trained_before(model, given, images):
    before = images_trained_before(model) if given is None else given
    if "validation" in images:
        warn_of_overlap(images)
        if before is not None:
            warn_of_validation(before, images["validation"])
    return before


def _find_state(workdir, keep):
    """The last state of a run, or `None` if it was stopped before it saved anything.

    Raises:
        ValueError: if its states were taken away, or none can be read.
    """
    workdir = pathlib.Path(workdir).expanduser()
    state = States(workdir / STATES, keep).load()
    run = run_metadata(workdir / LAST_MODEL)["run"]
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
    """The run's directory for the first process, one that is thrown away for each other.

    They all do the same, as variables that are shared out are put together for a file by all.
    """
    if is_first_process():
        yield pathlib.Path(workdir).expanduser().resolve()
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
            yield pathlib.Path(own)


def report_skipped(workdir, *datasets):
    """Says which images were skipped, and writes them with the reasons to `skipped.txt`."""
    lines = []
    for dataset in filter(lambda dataset: dataset is not None, datasets):
        if len(dataset.skipped):
            logging.getLogger("keras_vit").warning("%s", dataset.skipped)
        lines += [f"{id}\t{reason}\n" for id, reason in dataset.skipped.reasons().items()]
    if lines:
        write_text(pathlib.Path(workdir) / SKIPPED_FILE, "".join(lines))
