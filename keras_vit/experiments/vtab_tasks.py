"""The 19 tasks of VTAB-1k: run one after the other, with their results in `results.json`."""

import json
import logging
import pathlib
import textwrap

from keras_vit.core.files import LOCK_FILE, PARTIAL, differences, exclusive_lock, write_text
from keras_vit.data.loading import find_source
from keras_vit.data.sources.paper import DATASETS
from keras_vit.experiments.vtab_tables import GROUPS, TASKS

RESULTS_FILE = "results.json"


def find_tasks(names=()):
    """Return the tasks that names of tasks and groups stand for, in the paper's order; or all."""
    wanted = set()
    for name in names:
        tasks = GROUPS.get(name) or {name, f"vtab/{name}"}.intersection(TASKS)
        if not tasks:
            short = ", ".join(task.removeprefix("vtab/") for task in TASKS)
            raise ValueError(
                f"`tasks` must be among {short}, or groups: {', '.join(GROUPS)}. Received: {name!r}"
            )
        wanted.update(tasks)
    return tuple(task for task in TASKS if task in wanted or not names)


def check_data(tasks, data_dir=None, datasets=None):
    """Read the first and the last example of each split, and name all tasks that have none.

    TensorFlow Datasets downloads what is not on disk yet. `datasets` is as in `vtab`.
    """
    reasons = []
    for task in tasks:
        # Offline, TensorFlow Datasets tries for minutes to download each that is not there.
        logging.getLogger("keras_vit").info("looking at the data of %s", task)
        name = (datasets or {}).get(task, task)
        try:
            for split in DATASETS[task].splits:
                count = find_source(name, split, data_dir=data_dir).num_examples
                for shard in {(0, count), (count - 1, count)}:
                    source = find_source(name, split, data_dir=data_dir, shard=shard)
                    next(source.examples.as_numpy_iterator())
        except Exception as error:
            # TensorFlow's errors too, for files of a dataset that were not copied.
            reasons.append(f"{task} ({textwrap.shorten(str(error), 300) or type(error).__name__})")
    if reasons:
        raise ValueError(
            "The data of all tasks must be there before the first is trained on. Received: "
            f"{len(reasons)} of {len(tasks)} that cannot be loaded: {'; '.join(reasons)}"
        )


def run_tasks(tasks, train, workdir, settings, tell=print, on_done=None):
    """Train on the tasks that have no result yet, and record the results in `results.json`.

    Args:
        tasks: names of tasks.
        train: function that trains on a task and returns its accuracy on the test split, from 0
            to 1. After a stop it is called again with the same task.
        workdir: path of a new or empty directory, or of one that tasks were run in before.
        settings: dictionary of what the results depend on, as JSON has it.
        tell: function that is called with a line when a task begins and when it is done.
        on_done: function that is called with a task when its result is on disk.

    Returns:
        A dictionary from all tasks that have a result in the directory to their accuracies.

    Raises:
        ValueError: if the directory holds something else, or results of other settings.
        OSError: if the directory cannot be written to.

    Example:
    >>> accuracies = {"vtab/dtd": 0.7, "vtab/svhn": 0.8}
    >>> options = {"workdir": tmp_path, "settings": {"steps": 2500}}
    >>> run_tasks(["vtab/dtd"], accuracies.get, **options)
    [1/1] vtab/dtd ...
    [1/1] vtab/dtd: 70.00 %
    {'vtab/dtd': 0.7}
    >>> results = run_tasks(accuracies, accuracies.get, **options)
    [1/2] vtab/dtd: 70.00 %, done before
    [2/2] vtab/svhn ...
    [2/2] vtab/svhn: 80.00 %
    """
    # A directory that cannot be written is found before hours of training.
    _add_result(workdir, settings, {})
    for number, task in enumerate(tasks, start=1):
        place = f"[{number}/{len(tasks)}] {task}"
        accuracies, before = read_results(workdir, settings), ", done before"
        if task not in accuracies:
            tell(f"{place} ...")
            accuracies, before = _add_result(workdir, settings, {task: train(task)}), ""
        tell(f"{place}: {100 * accuracies[task]:.2f} %{before}")
        if on_done is not None:
            on_done(task)
    return read_results(workdir, settings)


def _add_result(workdir, settings, result):
    """Add a result to those in the file, which another process may have written meanwhile."""
    workdir = pathlib.Path(workdir)
    read_results(workdir, settings)
    workdir.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(workdir):
        accuracies = {**read_results(workdir, settings), **result}
        text = json.dumps({"settings": settings, "accuracies": accuracies}, indent=2)
        write_text(workdir / RESULTS_FILE, f"{text}\n")
    return accuracies


def read_results(workdir, settings):
    """Return the accuracies of the tasks that were run in a directory; none for a new one."""
    accuracies, before = recorded_results(workdir)
    if before is None:
        return accuracies
    if changed := differences(before, settings):
        raise ValueError(
            "All tasks in a directory must be run with the settings they were begun with. "
            f"Received: {changed[0]}"
        )
    return accuracies


def recorded_results(workdir):
    """Return `(accuracies, settings)` as a directory records them; `({}, None)` for a new one."""
    workdir = pathlib.Path(workdir)
    try:
        names = [path.name for path in workdir.iterdir()] if workdir.exists() else []
        if all(name.startswith((f".results{PARTIAL}", LOCK_FILE)) for name in names):
            return {}, None
        text = (workdir / RESULTS_FILE).read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_without_repeats)
        accuracies = {task: float(found["accuracies"][task]) for task in found["accuracies"]}
        settings = dict(found["settings"])
        wrong = [task for task in accuracies if not 0 <= accuracies[task] <= 1]
        if wrong:
            raise ValueError(f"{wrong[0]}: {accuracies[wrong[0]]} is not from 0 to 1")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"`workdir` must be a new or empty directory, or have the `{RESULTS_FILE}` of tasks "
            f"that were run in it. Received: workdir={str(workdir)!r} ({error})"
        ) from error
    return accuracies, settings


def _without_repeats(pairs):
    """Return a JSON object as a dictionary; without this `json` keeps the last of equal names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found
