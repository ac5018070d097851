"""A grid of runs: run each setting with each seed, and record the results in a file."""

import itertools

from keras_vit.core.files import exclusive_lock, read_csv, write_csv
from keras_vit.core.run_dir import RunDir

RESULTS = "results.csv"


def grid(settings, seeds, run, workdir, conditions, resume=True, repeat=False):
    """Run each setting with each seed, and write a row per run to `results.csv`.

    The same call resumes a stopped grid: runs that have a row are not repeated, and settings and
    seeds may be added. Several processes may run different settings and seeds at the same time.

    Args:
        settings: dictionary from names to settings.
        seeds: the seeds.
        run: function of a setting and a seed that returns a dictionary of numbers, with the same
            keys for each run; `None` stands for a missing number. If the process is stopped in the
            function, the next call of `grid` calls it again.
        workdir: path of a new or empty directory, or of the directory of the same grid.
        conditions: dictionary of everything else that the results depend on, which JSON can store.
        resume: whether `workdir` may already contain this grid.
        repeat: whether runs that have a row are run again, and their rows replaced.

    Returns:
        A list of the rows, dictionaries: `setting`, `seed`, and the numbers.

    Raises:
        ValueError: if the directory contains other files, or a grid with other conditions.
        OSError: if the directory cannot be written to.

    Example:
    >>> squares = {"a": 2, "b": 3}
    >>> grid(squares, (1,), lambda number, seed: {"square": number**2 + seed}, tmp_path, {})
    [1/2] a, seed 1 ...
    [2/2] b, seed 1 ...
    [{'setting': 'a', 'seed': 1, 'square': 5.0}, {'setting': 'b', 'seed': 1, 'square': 10.0}]
    """
    runs = list(itertools.product(settings, seeds))
    # All settings with the first seed, then all settings with the next seed.
    in_order = sorted(runs, key=lambda pair: [*seeds].index(pair[1]))
    with RunDir(workdir, conditions, resume).open(shared=True) as directory:
        path = directory.path / RESULTS
        for number, (name, seed) in enumerate(in_order, start=1):
            recorded = {_run_of(row) for row in read_results(path)}
            is_done = (name, seed) in recorded and not repeat
            title = f"[{number}/{len(runs)}] {name}, seed {seed}"
            print(f"{title}: done before" if is_done else f"{title} ...", flush=True)
            if is_done:
                continue
            row = {"setting": name, "seed": seed, **run(settings[name], seed)}
            # Read the file again: another process may have added rows.
            with exclusive_lock(directory.path):
                directory.add({})
                rows = {_run_of(row): row for row in read_results(path)}
                write_csv(path, list({**rows, _run_of(row): row}.values()))
        rows = {_run_of(row): row for row in read_results(path)}
    return [rows[pair] for pair in runs]


def _run_of(row):
    return row["setting"], row["seed"]


def read_results(path):
    """Return the rows of a `results.csv`; an empty list if there is no file."""
    types = {"setting": str, "seed": int}
    return [
        {name: types.get(name, _number)(cell) for name, cell in row.items()}
        for row in read_csv(path)
    ]


def _number(text):
    return float(text) if text else None


def by_setting(rows, column):
    """Return a dictionary from settings to lists of the values in a column, one per seed."""
    values = {}
    for row in rows:
        values.setdefault(row["setting"], []).append(row[column])
    return values
