"""The table of a study: runs each setting with each seed once, and records the results."""

import json
import math
import pathlib
import statistics

from keras_vit.core.files import differences, read_csv, write_csv, write_text
from keras_vit.core.text import mean_and_deviation
from keras_vit.experiments.studies.plan import TUNABLE

TABLE, FACTS = "study.csv", "study.json"
# Columns that name the run, and their types; the others are measured, and floats.
KEYS = {"setting": str, "seed": int}
# Columns from 0 to 1.
SHARES = ("accuracy", "fewshot", "finetuned")
# Facts whose order does not matter: a dataset numbers the classes to keep in its own order.
_UNORDERED = ("classes", "fewshot_classes", "finetune_classes")


def run_study(settings, seeds, measure, workdir, facts):
    """Train each setting with each seed, and record the results in `study.csv`.

    Runs that are in the file already are not repeated, so that a stopped study is resumed.

    `measure` trains a `Setting` with a seed, and returns a dictionary of numbers, or `None` for
    what the setting does not have, with the same keys each time. `facts` is a dictionary of what
    else the results depend on, as JSON has it. Returns a dictionary per run that is asked for:
    `setting`, `seed`, and the numbers.
    """
    workdir = pathlib.Path(workdir)
    path = workdir / TABLE
    _check_same(workdir, facts)
    rows = _read(path)
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed in seeds:
        for setting in settings:
            if (setting.name, seed) in done:
                continue
            rows.append({"setting": setting.name, "seed": seed, **measure(setting, seed)})
            # Written after the first run: one that fails at once must not refuse other facts.
            workdir.mkdir(parents=True, exist_ok=True)
            write_text(workdir / FACTS, json.dumps(facts, indent=2) + "\n")
            write_csv(path, rows)
    names = [setting.name for setting in settings]
    asked = [row for row in rows if row["setting"] in names and row["seed"] in seeds]
    return sorted(asked, key=lambda row: (names.index(row["setting"]), row["seed"]))


def read_study(workdir):
    """Return `(facts, rows)` of the study in a directory, as `run_study` takes and returns them.

    Raises:
        OSError: if a file of the study cannot be read.
        ValueError: if it is not that of a study.
    """
    workdir = pathlib.Path(workdir)
    return _read_facts(workdir), _read(workdir / TABLE)


def by_setting(rows, column):
    """Return the values of a column per setting, as lists with one value per seed."""
    found = {}
    for row in rows:
        found.setdefault(row["setting"], []).append(row[column])
    return found


def _share(found):
    if None in found:
        return "-"
    return f"{mean_and_deviation([100 * value for value in found], 2)} %"


def _chosen(found):
    return ", ".join(dict.fromkeys("-" if value is None else f"{value:g}" for value in found))


# Per measured column its title, and a function that prints the values of a setting.
_SUMMARIES = {
    **{field: (field.replace("_", " "), _chosen) for field in TUNABLE},
    "images": ("images", lambda found: f"{statistics.mean(found):,.0f}"),
    "exaflops": ("exaFLOPs", lambda found: f"{found[0]:.3g}"),
    "fewshot": ("few-shot accuracy", _share),
    "finetuned": ("fine-tuned accuracy", _share),
    "accuracy": ("test accuracy", _share),
}


def summary(rows):
    """Return columns and rows of strings: the means over the seeds of each setting.

    Accuracies have the standard deviation (n - 1) too.

    Example:
    >>> summary([{"setting": "none", "seed": s, "accuracy": s / 4} for s in (1, 3)])
    (('setting', 'seeds', 'test accuracy'), [('none', '2', '50.00 ± 35.36 %')])
    """
    shown = {name: how for name, how in _SUMMARIES.items() if name in rows[0]}
    lines = []
    for name, accuracies in by_setting(rows, "accuracy").items():
        cells = [how(by_setting(rows, column)[name]) for column, (_, how) in shown.items()]
        lines.append((name, f"{len(accuracies)}", *cells))
    return ("setting", "seeds", *(title for title, _ in shown.values())), lines


def _check_same(workdir, facts):
    """Raise `ValueError` if a directory has a study with other facts, or other files."""
    if not (workdir / FACTS).exists():
        has_files = workdir.is_dir() and any(entry.is_file() for entry in workdir.iterdir())
        if has_files or (workdir.exists() and not workdir.is_dir()):
            raise ValueError(
                "`workdir` must be a new directory, or one that the study was begun in. "
                f"Received: workdir={str(workdir)!r} with other files"
            )
        return
    before = _read_facts(workdir)
    # A dataset that is added or left out has runs of its own.
    others = {name for name in before.keys() ^ facts.keys() if name.endswith("_digest")}
    before, now = ({n: v for n, v in found.items() if n not in others} for found in (before, facts))
    if changed := differences(before, now, _UNORDERED):
        raise ValueError(f"A study must go on with what it was begun with. Received: {changed[0]}")


def _read_facts(workdir):
    path = workdir / FACTS
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"A study's facts must be a dictionary in JSON. Received: {str(path)!r} ({error})"
        ) from error


def _read(path):
    try:
        rows = [
            {name: KEYS.get(name, _number)(line[name]) for name in {**KEYS, **line}}
            for line in read_csv(path)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"A study's table must have the columns {' and '.join(KEYS)}, and numbers in all but "
            f"the first. Received: {str(path)!r}"
        ) from error
    seen = set()
    for row in rows:
        key = row["setting"], row["seed"]
        is_right = all(
            row[name] is None
            or (0 <= row[name] < math.inf and (row[name] <= 1 or name not in SHARES))
            for name in row.keys() - KEYS
        )
        if key in seen or not is_right:
            raise ValueError(
                "A study's table must have one row for each setting and seed, shares from 0 to 1 "
                "and other numbers that are finite and not negative. "
                f"Received: {str(path)!r} with {row}"
            )
        seen.add(key)
    return rows


def _number(text):
    return None if text == "" else float(text)
