"""A grid of runs: each of some settings with each of some seeds, recorded as they end."""

import itertools

from keras_vit.core.files import exclusive_lock, read_csv, write_csv
from keras_vit.core.run_dir import RunDir

RESULTS = "results.csv"


def grid(settings, seeds, run, workdir, conditions, resume=True, repeat=False):
    """Run each setting with each seed, and record a row of each run in `results.csv`.

    A run that is recorded is not repeated, so that a stopped grid is resumed; settings and seeds
    may be added. Several processes may run other parts of a grid at the same time.

    Args:
        settings: dictionary from names to settings.
        seeds: the seeds.
        run: function of a setting and a seed that returns a dictionary of numbers, or `None` for
            what the setting does not have, with the same keys each time. After a stop it is called
            again with the same run.
        workdir: path of a new or empty directory; or of the same grid.
        conditions: dictionary of what else the results depend on, as JSON has it.
        resume: whether `workdir` may have been begun in.
        repeat: whether runs that are recorded are run again, and replaced.

    Returns:
        A list of the rows, dictionaries: `setting`, `seed`, and the numbers.

    Raises:
        ValueError: if the directory holds something else, or a grid with other conditions.
        OSError: if the directory cannot be written.

    Example:
    >>> squares = {"a": 2, "b": 3}
    >>> grid(squares, (1,), lambda number, seed: {"square": number**2 + seed}, tmp_path, {})
    [1/2] a, seed 1 ...
    [2/2] b, seed 1 ...
    [{'setting': 'a', 'seed': 1, 'square': 5.0}, {'setting': 'b', 'seed': 1, 'square': 10.0}]
    """
    asked = list(itertools.product(settings, seeds))
    in_order = sorted(asked, key=lambda key: [*seeds].index(key[1]))
    with RunDir(workdir, conditions, resume).open(shared=True) as directory:
        path = directory.path / RESULTS
        for number, (name, seed) in enumerate(in_order, start=1):
            is_done = (name, seed) in {key(row) for row in read_results(path)} and not repeat
            place = f"[{number}/{len(asked)}] {name}, seed {seed}"
            print(f"{place}: done before" if is_done else f"{place} ...", flush=True)
            if is_done:
                continue
            row = {"setting": name, "seed": seed, **run(settings[name], seed)}
            # Another process may have written rows meanwhile.
            with exclusive_lock(directory.path):
                # RuleInputs of what was added to the grid.
                directory.add({})
                rows = {key(row): row for row in read_results(path)}
                write_csv(path, list({**rows, key(row): row}.values()))
        rows = {key(row): row for row in read_results(path)}
    return [rows[key] for key in asked]


def key(row):
    """Return the setting and the seed of a row."""
    return row["setting"], row["seed"]


def read_results(path):
    """Return the rows of a `results.csv`; none without the file."""
    types = {"setting": str, "seed": int}
    return [
        {name: types.get(name, _number)(cell) for name, cell in row.items()}
        for row in read_csv(path)
    ]


def _number(text):
    return float(text) if text else None


def by_setting(rows, column):
    """Return the values of a column per setting, as lists with one value per seed."""
    found = {}
    for row in rows:
        found.setdefault(row["setting"], []).append(row[column])
    return found
