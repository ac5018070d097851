"""Studies: the same training with one thing changed, over several seeds."""

import csv
import dataclasses
import io
import json
import math
import pathlib

from keras_vit.core.files import replacing
from keras_vit.experiments.digests import recorded_differences

TABLE, FACTS = "study.csv", "study.json"
# Which run a row is of; the other columns are what was measured.
KEYS = ("setting", "seed")
# Columns that are shares, from 0 to 1.
SHARES = ("accuracy", "fewshot")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What one line of a study trains.

    Args:
        name: in the table and the figure.
        model: name of a variant.
        changes: fields of the recipe that are another for it.
        fraction: share of the training images.
    """

    name: str
    model: str
    changes: dict = dataclasses.field(default_factory=dict)
    fraction: float = 1.0


def scaling(models):
    """Accuracy against compute: several models, one recipe (section 4.4 of the ViT paper)."""
    return [Setting(model, model) for model in models]


def positions(models):
    """Kinds of position embeddings (appendix D.4 of the ViT paper)."""
    kinds = {
        "none": "none",
        "1-D, learned": "learned",
        "2-D, learned": "learned2d",
        "2-D, sines and cosines": "sincos2d",
    }
    return _with_changes(models, "position_embedding", kinds)


def poolings(models):
    """The class token against means and attention over the patches (appendix D.3)."""
    kinds = {"class token": "token", "mean of patches": "gap", "attention": "map"}
    return _with_changes(models, "pooling", kinds)


def data_sizes(models, fractions):
    """Accuracy against images: the same steps on parts of a dataset (section 4.3, figure 4)."""
    return [
        Setting(f"{model}, {100 * fraction:.12g} %", model, fraction=fraction)
        for model in models
        for fraction in fractions
    ]


STUDIES = {"scaling": scaling, "positions": positions, "poolings": poolings}


def _with_changes(models, field, kinds):
    return [
        Setting(f"{model}, {name}", model, {field: kind})
        for model in models
        for name, kind in kinds.items()
    ]


def run_study(settings, seeds, measure, workdir, facts):
    """Trains each setting with each seed, and notes what it came to in `study.csv`.

    What the file has already is not trained again, so that a study that was stopped goes on.

    Args:
        settings: list of `Setting`.
        seeds: integers.
        measure: function of a setting and a seed that trains, and returns what came of it: a
            dictionary of numbers, the same columns each time.
        workdir: path of a new directory, or of one that the same study was begun in.
        facts: dictionary of what else the figures depend on, as JSON has it.

    Returns:
        A list of dictionaries, a row of the file each: `setting`, `seed`, and what was measured.

    Raises:
        ValueError: if the directory has a study with other facts, or a file that is none.
    """
    workdir = pathlib.Path(workdir)
    path = workdir / TABLE
    _check_same(workdir, facts)
    rows = _read(path)
    for seed in seeds:
        for setting in settings:
            if any((row["setting"], row["seed"]) == (setting.name, seed) for row in rows):
                continue
            rows.append({"setting": setting.name, "seed": seed, **measure(setting, seed)})
            # Only now: a run that fails at once is no reason to refuse others.
            _write_text(workdir / FACTS, json.dumps(facts, indent=2) + "\n")
            _write(path, rows)
    names = [setting.name for setting in settings]
    asked = [row for row in rows if row["setting"] in names and row["seed"] in seeds]
    return sorted(asked, key=lambda row: (names.index(row["setting"]), row["seed"]))


def by_setting(rows, column):
    """The values of a column for each setting, one for each seed.

    Args:
        rows: of `run_study`.
        column: its name.

    Returns:
        A dictionary from the settings' names to lists.

    Example:
    >>> rows = [{"setting": "none", "seed": s, "exaflops": 1.0, "accuracy": s / 4} for s in (1, 3)]
    >>> by_setting(rows, "accuracy")
    {'none': [0.25, 0.75]}
    """
    found = {}
    for row in rows:
        found.setdefault(row["setting"], []).append(row[column])
    return found


def _check_same(workdir, facts):
    """Raises if a directory has a study of something else, or another thing's files."""
    path = workdir / FACTS
    if not path.exists():
        if workdir.exists() and (
            not workdir.is_dir() or any(entry.is_file() for entry in workdir.iterdir())
        ):
            raise ValueError(
                "`workdir` must be a new directory, or one that the study was begun in. "
                f"Received: workdir={str(workdir)!r}, which holds something else"
            )
        return
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"A study's facts must be a dictionary in JSON. Received: {str(path)!r} ({error})"
        ) from error
    changed = recorded_differences(before, facts, path)
    if changed:
        raise ValueError(f"A study must go on with what it was begun with. Received: {changed[0]}")


def _write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _read(path):
    if not path.exists():
        return []
    try:
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        rows = [
            {
                "setting": line.pop("setting"),
                "seed": int(line.pop("seed")),
                **{name: float(value) for name, value in line.items()},
            }
            for line in lines
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"A study's table must have the columns {' and '.join(KEYS)}, and numbers in all but "
            f"the first. Received: {str(path)!r}"
        ) from error
    _check_rows(rows, path)
    return rows


def _check_rows(rows, path):
    seen = set()
    for row in rows:
        key = row["setting"], row["seed"]
        values = {name: row[name] for name in row if name not in KEYS}
        is_right = all(
            0 <= value <= (1 if name in SHARES else math.inf) and math.isfinite(value)
            for name, value in values.items()
        )
        if key in seen or not is_right:
            raise ValueError(
                "A study's table must have one row for each setting and seed, shares from 0 to 1 "
                "and other numbers that are finite and not negative. "
                f"Received: {str(path)!r} with {row}"
            )
        seen.add(key)


def _write(path, rows):
    lines = io.StringIO(newline="")
    writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write_text(path, lines.getvalue())
