"""Tables of measured results (of runs, VTAB and studies) next to the paper's results."""

import json
import os
import pathlib
import statistics
from collections.abc import Sequence

from keras_vit.checkpoints.run_files import RUN_FILE
from keras_vit.core.text import mean_and_deviation
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.grid import RESULTS, read_results
from keras_vit.experiments.model_and_data import open_trained
from keras_vit.experiments.paper_results import TITLES, paper_results
from keras_vit.experiments.paper_tables import PaperTable
from keras_vit.experiments.reported import TABLE_2, TABLE_5, VTAB, check_row_fits, reported_rows
from keras_vit.experiments.study_run import summary_table
from keras_vit.experiments.vtab_run import accuracies_by_seed
from keras_vit.experiments.vtab_tables import (
    REPORTED,
    describe_row,
    find_row,
    table_columns,
    table_rows,
)
from keras_vit.training.recipe import find_recipe

_IN_FIGURE_2 = tuple(f"{model}/jft300m/{VTAB}" for model in ("ViT_H14", "BiT_R152x4"))
# The rows of each table or figure that a run or the results of `vtab` can be compared with.
_ROWS = {
    "Table 2": TABLE_2,
    "Table 5": TABLE_5,
    "Table 6": reported_rows("Table 6"),
    "Table 7": reported_rows("Table 7"),
    "Table 9": tuple(row for row in TABLE_2 if row.name in REPORTED),
    "Figure 2": tuple(row for row in TABLE_2 if row.name in _IN_FIGURE_2),
    "Figure 3": tuple(row for row in TABLE_5 if row.dataset == "imagenet2012"),
}
# From figures to the tables that contain the results of the figure.
_FIGURE_TABLES = {"Figure 3": "Table 5", "Figure 5": "Table 6"}
# From a dataset that is only for evaluation to the dataset that models are fine-tuned on, with the
# same images and other labels.
_TRAINED_ON = {"imagenet2012_real": "imagenet2012"}
COLUMNS = ("row", "runs", "measured", "reported", "difference")


def measured_tables(
    name: str, directories: Sequence[str], data_dir: str | os.PathLike | None = None
) -> list[PaperTable]:
    """Return tables of measured results next to the paper's results.

    Args:
        name: name of a table or figure, as in `paper_table`.
        directories: strings: the path of a directory that `vtab` or `study` has written; or
            `"NAME=PATH"` with the name of a row and the path of a run of
            `keras_vit.training.train`, such as `"ViT_L16/jft300m/cifar10=runs/cifar"`. Runs are
            evaluated on the test split, as by `keras-vit evaluate`, and several runs with the same
            row are averaged. `NAME=` is optional for a directory of `vtab`, whose row is found by
            the name of its model.
        data_dir: directory of TensorFlow Datasets, to evaluate runs on.

    Returns:
        A list of `PaperTable`: one for all runs, then one per directory of `vtab` or `study`.

    Raises:
        ValueError: if a directory has no result for the table, or a run has another model or
            dataset than the row it is compared with.
    """
    rows, runs, tables = {row.name: row for row in _ROWS.get(name, ())}, {}, []
    for text in directories:
        row_name, _, path = text.partition("=")
        row = rows.get(row_name)
        path = pathlib.Path(text if row is None else path).expanduser()
        file = path / "settings.json"
        has_results = file.is_file() and (path / RESULTS).is_file()
        settings = json.loads(file.read_text(encoding="utf-8")) if has_results else {}
        if (path / RUN_FILE).is_file() and row is not None:
            runs.setdefault(row, []).append(_measure_run(path, row, data_dir))
        elif "study" in settings and row is None:
            tables.append(_study_table(name, path, settings))
        elif "datasets" in settings:
            row = row or find_row(settings["model"])
            if row not in rows.values() or row.dataset != VTAB:
                _refuse(name, path, "VTAB for a model that has no row; name a row with NAME=PATH")
            tables.append(_vtab_table(name, path, row, settings))
        else:
            hint = f"; name the row of a run with NAME=PATH: {', '.join(rows)}" if rows else ""
            _refuse(name, path, f"which has no results of VTAB or of a study{hint}")
    return [*([_runs_table(runs)] if runs else []), *tables]


def _refuse(name, path, description):
    raise ValueError(
        f"`directories` must have results for a row of {name} of the paper. "
        f"Received: {str(path)!r}, {description}"
    )


def _measure_run(path, row, data_dir):
    """Return the test accuracy of a run, and a line of text that compares it with a row."""
    trained = open_trained(path)
    # Evaluate on the run's dataset, unless the row is for other labels of the same images.
    dataset = row.dataset if row.dataset in _TRAINED_ON else None
    test = trained.load(dataset, "test", batch_size=32, data_dir=data_dir)
    check_row_fits(row, trained.model, dataset or trained.run.get("data"), len(test.class_names))
    trained.warn_if_trained_on(test.info.dataset.source)
    accuracy = evaluate(trained.model, test)["accuracy"]
    return accuracy, f"{path}: {row.compare(accuracy, trained.model.input_shape[1:3])}"


def _runs_table(runs):
    rows, notes = [], []
    for row, results in runs.items():
        accuracies = [100 * accuracy for accuracy, _ in results]
        difference = f"{statistics.mean(accuracies) - row.accuracy:+.2f}"
        measured = f"{mean_and_deviation(accuracies, 2)} %"
        rows.append((row.name, str(len(accuracies)), measured, str(row), difference))
        notes += [line for _, line in results]
    return PaperTable("Measured, runs", COLUMNS, tuple(rows), tuple(notes))


def _vtab_table(name, path, row, settings):
    rows = list(table_rows([*accuracies_by_seed(path).values()], row))
    if name == "Table 2":
        rows = rows[-1:]
    elif name == "Figure 2":
        rows = [cells for cells in rows if not cells[0].startswith("vtab/")]
    notes = (describe_row(row, find_recipe(settings["recipe"])),)
    return PaperTable(f"Measured, {path}", table_columns(row), tuple(rows), notes)


def _study_table(name, path, settings):
    """Return the results of a study as a table, next to the paper's results."""
    data = ", ".join(
        conditions["name"] for key, conditions in settings.items() if key.startswith("data ")
    )
    title = f"Measured, {path}: study {settings['study']} on {data}"
    reported = _reported_settings(_FIGURE_TABLES.get(name, name), settings["finetune_data"])
    (first, *columns), lines = summary_table(read_results(path / RESULTS))
    rows = tuple((setting, _find_cell(reported, setting), *cells) for setting, *cells in lines)
    return PaperTable(title, (first, "reported", *columns), rows)


def _find_cell(reported, setting):
    # In Table 8, the name of a setting does not begin with the model, as it does in a study.
    names = (name for name in reported if name == setting or setting.endswith(f", {name}"))
    return "; ".join(reported.get(next(names, None), ["-"]))


def _reported_settings(name, finetune_data):
    """Return a dictionary from settings of studies to lists of the paper's results as strings.

    From Table 5, only the results on the dataset of the fine-tuning are returned.
    """
    results = {}
    # Other tables have no results that a study can be compared with.
    for row in paper_results(name) if name in ("Table 5", "Table 6", "Table 7", "Table 8") else ():
        if row.study and (name != "Table 5" or row.dataset == (finetune_data or {}).get("name")):
            setting = f", {row.setting}" if name == "Table 6" else ""
            results.setdefault(row.study, []).append(f"{row} ({TITLES[row.dataset]}{setting})")
    return results
