"""Results of one's own runs, next to the rows of a table or figure of the paper."""

import dataclasses
import difflib
import os
import pathlib
import statistics
from collections.abc import Sequence

from keras_vit.checkpoints.runs import RUN_FILE
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.sources.paper import DATASETS
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.comparison import TRAINED_ON, check_meant, reported_of_run
from keras_vit.experiments.paper import accuracies, scaling
from keras_vit.experiments.paper.layout import PaperTable
from keras_vit.experiments.paper.measured_studies import models_of, study_cells
from keras_vit.experiments.paper.vtab import TASKS
from keras_vit.experiments.reported import TABLE_2, TABLE_5, VTAB, reported_rows
from keras_vit.experiments.studies.table import TABLE as STUDY_FILE
from keras_vit.experiments.trained_model import open_trained
from keras_vit.experiments.vtab_tables import (
    REPORTED,
    describe_row,
    find_row,
    table_columns,
    table_rows,
)
from keras_vit.experiments.vtab_tasks import RESULTS_FILE, recorded_results
from keras_vit.training.recipe import Recipe
from keras_vit.training.starting_model import make_model

_IN_FIGURE_2 = tuple(f"{model}/jft300m/{VTAB}" for model in ("ViT_H14", "BiT_R152x4"))
# The rows of each table that runs, or the tasks of VTAB, may reproduce.
_ROWS = {
    "Table 2": TABLE_2,
    "Table 5": TABLE_5,
    "Table 6": reported_rows(scaling.TABLE_6),
    "Table 7": reported_rows(accuracies.TABLE_7),
    "Table 9": tuple(row for row in TABLE_2 if row.name in REPORTED),
    "Figure 2": tuple(row for row in TABLE_2 if row.name in _IN_FIGURE_2),
    "Figure 3": tuple(row for row in TABLE_5 if row.dataset == "imagenet2012"),
}
COLUMNS = ("row", "runs", "measured", "reported", "difference")


def measured_tables(
    name: str, directories: Sequence[str | os.PathLike], data_dir: str | os.PathLike | None = None
) -> list[PaperTable]:
    """Return tables of what was measured, next to the results that the paper reports.

    Args:
        name: name of a table or figure, as in `paper_table`.
        directories: paths as strings. A run of `keras_vit.training.train` is evaluated on the test
            split, as `keras-vit evaluate` does; several runs of a row are averaged. The results of
            `vtab` and of `study` are read. The row is found as `keras-vit evaluate` finds it.
            `"NAME=PATH"` names it for a run from another checkpoint or with other settings, such as
            `"ViT_L16/jft300m/cifar10=runs/cifar"`.
        data_dir: directory of TensorFlow Datasets, for runs.

    Returns:
        A list of `PaperTable`: one of all runs, then one per VTAB directory and study.

    Raises:
        ValueError: if a directory has no result of the table, or a named row is for another model
            or dataset.
    """
    runs, tables = {}, []
    for text in directories:
        row, path = _row_and_path(name, text)
        if (path / RUN_FILE).is_file():
            row, *result = _measure_run(name, path, row, data_dir)
            runs.setdefault(row, []).append(result)
        elif (path / RESULTS_FILE).is_file():
            tables.append(_vtab_table(name, path, row))
        elif (path / STUDY_FILE).is_file():
            tables.append(_study_table(name, path, row))
        else:
            _refuse(name, path, "which has no results (yet) of a run, of VTAB or of a study")
    return [*([_runs_table(runs)] if runs else []), *tables]


def _refuse(name, path, what):
    raise ValueError(
        f"`measured` must name directories with results of a row of {name} of the paper. "
        f"Received: {str(path)!r}, {what}"
    )


def _row_and_path(name, text):
    """Return the `Reported` row that `NAME=PATH` names, or `None`, and the path."""
    row_name, equals, path = text.partition("=")
    if not equals or pathlib.Path(text).expanduser().exists():
        return None, pathlib.Path(text).expanduser()
    rows = {row.name: row for row in _ROWS.get(name, ())}
    if row_name not in rows:
        nearest = difflib.get_close_matches(row_name, rows, cutoff=0)
        known = f"such as {', '.join(nearest)}" if nearest else "and this one has none"
        raise ValueError(
            f"`measured` must name a row of {name} that runs can reproduce, {known}. "
            f"Received: {text!r}"
        )
    return rows[row_name], pathlib.Path(path).expanduser()


def _measure_run(name, path, row, data_dir):
    """Return the row of a run, its accuracy on the test split, and a line that compares them."""
    rows = [known for known in _ROWS.get(name, ()) if known.dataset != VTAB]
    if not rows:
        _refuse(name, path, "a run")
    trained, is_named = open_trained(path), row is not None
    data = trained.run.get("data")
    row = row if is_named else reported_of_run(trained.run, trained.model, data, rows)
    if row is None:
        _refuse(
            *(name, path),
            f"a run that does not do what a row did: {trained.run.get('model')} on {data}; "
            "NAME=PATH names the row",
        )
    # The run's own data, unless the row is of others with the same images.
    other = row.dataset if row.dataset in TRAINED_ON else None
    test = trained.load(other, "test", batch_size=32, data_dir=data_dir)
    if is_named:
        check_meant(row, trained.model, other or data, len(test.class_names))
    trained.warn_if_trained_on(test.info.dataset.source)
    accuracy = evaluate(trained.model, test)["accuracy"]
    return row, accuracy, f"{path}: {row.compare(accuracy, trained.model.input_shape[1:3])}"


def _runs_table(runs):
    rows, notes = [], []
    for row, results in runs.items():
        found = [100 * accuracy for accuracy, _ in results]
        difference = f"{statistics.mean(found) - row.accuracy:+.2f}"
        measured = f"{mean_and_deviation(found, 2)} %"
        rows.append((row.name, str(len(found)), measured, str(row), difference))
        notes += [line for _, line in results]
    return PaperTable("Measured, runs", COLUMNS, tuple(rows), tuple(notes))


def _vtab_table(name, path, row):
    known = [known for known in _ROWS.get(name, ()) if known.dataset == VTAB]
    found, columns, rows, note = _vtab_rows(path, row and row.name)
    if found not in known:
        _refuse(name, path, "results of VTAB for a model that has no row; NAME=PATH names the row")
    groups = [cells for cells in rows if not cells[0].startswith("vtab/")]
    if name == "Table 2":
        # The paper's mean is over all 19 tasks.
        rows = [groups[-1]]
        if " of " in rows[0][0].partition("mean of ")[2]:
            _refuse(name, path, f"the results of a part of the tasks: {rows[0][0]}")
    elif name == "Figure 2":
        rows = groups
    return PaperTable(f"Measured, {path}", columns, tuple(rows), (note,))


def _vtab_rows(workdir, compare=None):
    """Return the row of Table 2, and columns, rows and a note as `keras-vit vtab` prints them."""
    measured, settings = recorded_results(workdir)
    recipe, model = _recipe_of(settings), None
    if compare is not None:
        classes = DATASETS[TASKS[0]].num_classes
        model = make_model(recipe, settings["model"], classes, settings.get("dtype"))
    row = find_row(settings.get("model"), model, compare)
    note = describe_row(row, recipe) if row else ""
    return row, table_columns(row), list(table_rows(measured, row)), note


def _recipe_of(settings):
    """Return the recipe that the settings of a directory contain, as JSON has it."""
    names = {field.name for field in dataclasses.fields(Recipe)}
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name in names
    }
    return Recipe(**options)


def _study_table(name, path, row):
    title, columns, rows = study_cells(name, path)
    if row is not None:
        _refuse(name, path, f"{title}, whose rows have the names of its settings: leave out NAME=")
    if not any(cells[1] != "-" for cells in rows):
        known = ", ".join(models_of(name))
        hint = f", which has those of {known}" if known else ""
        _refuse(name, path, f"{title}, none of whose settings is in {name}{hint}")
    return PaperTable(f"Measured, {path}: {title}", columns, rows)
