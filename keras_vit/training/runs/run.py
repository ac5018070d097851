"""The directory of a training run: settings, curves and models."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import re
import shutil

import keras

from keras_vit.checkpoints.runs import LAST_MODEL, RUN_FILE, read_run
from keras_vit.core.files import PARTIAL, differences, exclusive_lock, replacing
from keras_vit.data.sources.kinds import find_kind

METRICS_FILE = "metrics.jsonl"
SKIPPED_FILE = "skipped.txt"
# A copy of the file of ids that the run left out of its data.
EXCLUDED_FILE = "excluded.txt"
STATES = "states"
TENSORBOARD = "tensorboard"
# Arguments of `train` that do not change the result of a finished run, and their defaults. They are
# no part of the run's id, and may change when it is resumed.
HANDLING = {"save_steps": 1000, "keep": 2, "max_skipped": 0.1, "data_dir": None}
_WRITABLE = "`workdir` must be a directory that can be written"
_OF_DIGEST = re.compile(r"\w+_digest=")


def open_run(workdir, recipe, facts, resume=False):
    """Make the directory of a run and write its settings to `run.json`.

    The id of the run depends on the recipe and the facts, among them the digests of its images. A
    resumed run may have its model, its teacher and its data in another place, if they are the same.
    Return a list of the paths that were made, for `discard`.
    """
    run = {"recipe": dataclasses.asdict(recipe), **facts, "keras": keras.__version__}
    # Equal runs have equal ids, so that their files can be compared.
    identity = {name: value for name, value in run.items() if name not in HANDLING}
    run["id"] = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    run["backend"] = keras.backend.backend()
    try:
        is_made = not workdir.exists()
        if _holds_something(workdir):
            check_new(workdir, resume)
            _check_same(workdir, run, recipe)
            return []
        workdir.mkdir(parents=True, exist_ok=True)
        write_text(workdir / RUN_FILE, json.dumps(run, indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"{_WRITABLE}. Received: workdir={str(workdir)!r} ({error})") from error
    names = (RUN_FILE, METRICS_FILE, TENSORBOARD, STATES, EXCLUDED_FILE)
    made = [workdir / name for name in names]
    return [*made, workdir] if is_made else made


def check_new(workdir, resume=False):
    """Check that a directory can be written, and is new or empty unless a run is resumed in it."""
    workdir = pathlib.Path(workdir)
    exists = next(path for path in (workdir, *workdir.absolute().parents) if path.exists())
    if exists.is_dir() and not os.access(exists, os.W_OK | os.X_OK):
        raise ValueError(
            f"{_WRITABLE}. Received: workdir={str(workdir)!r} (no permission for {exists})"
        )
    if not resume and _holds_something(workdir):
        holds = "already holds something" if workdir.is_dir() else "is a file"
        raise ValueError(
            "`workdir` must be a new or empty directory, so that no run is overwritten; with "
            "`resume` (`--resume`) a stopped run continues. "
            f"Received: workdir={str(workdir)!r}, which {holds}"
        )


def _holds_something(workdir):
    """Return whether a path holds more than the partial file of a killed process."""
    if not workdir.is_dir():
        return workdir.exists()
    return any(not path.name.startswith(f".run{PARTIAL}") for path in workdir.iterdir())


def discard(made):
    """Remove what `open_run` made for a run that failed before it saved anything."""
    for path in made:
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif path.name in (TENSORBOARD, STATES):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def locked(workdir):
    """Keep other processes from training in the same directory."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(workdir, wait=False))
        except TimeoutError as error:
            raise ValueError(
                "Only one process may train in `workdir`. Received: workdir="
                f"{str(workdir)!r}, where another process is training"
            ) from error
        for partial in workdir.rglob(f".*{PARTIAL}*"):
            # A killed process was writing it.
            partial.unlink()
        yield


def _check_same(workdir, run, recipe):
    """Check that a directory holds the same run, which can be resumed."""
    before = read_run(workdir / LAST_MODEL)
    if "recipe" not in before:
        raise ValueError(
            "`workdir` must be the directory of a run to be resumed, with a `run.json`. "
            f"Received: workdir={str(workdir)!r}"
        )
    # A run may resume on other devices.
    names = ("recipe", "keras", "backend", "id", "strategy", "model_shards", "has_ended")
    not_compared = dict.fromkeys((*names, *HANDLING, *_moved(before, run)))
    old, new = ({**facts["recipe"], **facts, **not_compared} for facts in (before, run))
    # A dataset orders the classes to keep itself.
    changed = differences(old, new, unordered=("classes",))
    # If both changed, the path says more than the digest.
    changed = [change for change in changed if not _OF_DIGEST.match(change)] or changed
    _refuse_changes(changed, recipe)
    if before.get("backend", run["backend"]) != run["backend"]:
        logging.getLogger("keras_vit").warning(
            "the run began on %s and resumes on %s: random numbers and results will differ",
            *(before["backend"], run["backend"]),
        )


def check_same_recipe(begun, recipe):
    """Check that a run, whose `run.json` is `begun`, was begun with the recipe."""
    _refuse_changes(differences(begun["recipe"], dataclasses.asdict(recipe)), recipe)


def _refuse_changes(changed, recipe):
    """Raise an error that lists the settings that changed since a run was begun, if any did."""
    if changed:
        is_longer = changed[0].startswith(("steps=", "epochs=")) and recipe.is_of_classes
        hint = "; a new run of its model with `keep_head` (`--keep-head`) trains it further"
        raise ValueError(
            f"A resumed run must have the settings it was begun with{hint if is_longer else ''}. "
            f"Received: {', '.join(changed[:5])}"
            + (f" and {len(changed) - 5} more" if changed[5:] else "")
        )


def record_places(workdir, facts):
    """Record in `run.json` where the model, the teacher and the data of a resumed run are now.

    The arguments in `HANDLING` are recorded too, as they may have changed.
    """
    before = read_run(workdir / LAST_MODEL)
    run = {name: value for name, value in before.items() if name not in HANDLING}
    names = (*_moved(before, facts), *(HANDLING.keys() & facts.keys()))
    _record(workdir, before, {**run, **{name: facts[name] for name in names}})


def record_end(workdir):
    """Record in `run.json` that the run has ended."""
    before = read_run(workdir / LAST_MODEL)
    _record(workdir, before, {**before, "has_ended": True})


def _record(workdir, before, run):
    if run != before:
        write_text(workdir / RUN_FILE, json.dumps(run, indent=2) + "\n")


def _moved(before, run):
    """Yield the settings, of files and folders, whose path changed and whose contents did not."""
    for name in ("model", "teacher"):
        digest = run.get(f"{name}_digest")
        is_same = digest is not None and before.get(f"{name}_digest") == digest
        if is_same and before.get(name) != run.get(name):
            yield name
    if before.get("images") != run.get("images"):
        return
    # The list decides which images there are.
    if before.get("exclude") and run.get("exclude") and before["exclude"] != run["exclude"]:
        yield "exclude"
    old, new = (str(facts.get("data", "")) for facts in (before, run))
    kind, _ = find_kind(old)
    if kind is not None and kind.is_path and find_kind(new)[0] == kind and old != new:
        yield "data"


def write_text(path, text):
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
