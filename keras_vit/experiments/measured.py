"""Results of one's own runs, of VTAB and of studies, next to those of the paper."""

import difflib
import json
import os
import pathlib
import statistics
from collections.abc import Sequence

from keras_vit.checkpoints.runs import RUN_FILE
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.sources.paper import DATASETS
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.grid import RESULTS, read_results
from keras_vit.experiments.paper_results import DRAWN, TITLES, paper_results, paper_rows
from keras_vit.experiments.paper_tables import PaperTable
from keras_vit.experiments.reported import (
    TABLE_2,
    TABLE_5,
    TRAINED_ON,
    VTAB,
    check_meant,
    reported_of_run,
    reported_rows,
)
from keras_vit.experiments.study_run import summary
from keras_vit.experiments.trained_model import open_trained
from keras_vit.experiments.vtab_run import accuracies_by_seed
from keras_vit.experiments.vtab_tables import (
    REPORTED,
    TASKS,
    describe_row,
    find_row,
    table_columns,
    table_rows,
)
from keras_vit.training.recipes import find_recipe
from keras_vit.training.starting_model import make_model

_IN_FIGURE_2 = tuple(f"{model}/jft300m/{VTAB}" for model in ("ViT_H14", "BiT_R152x4"))
# The rows of each table that runs, or the tasks of VTAB, may reproduce.
_ROWS = {
    "Table 2": TABLE_2,
    "Table 5": TABLE_5,
    "Table 6": reported_rows("Table 6"),
    "Table 7": reported_rows("Table 7"),
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
        facts = _facts(path)
        if (path / RUN_FILE).is_file():
            row, *result = _measure_run(name, path, row, data_dir)
            runs.setdefault(row, []).append(result)
        elif "study" in facts:
            tables.append(_study_table(name, path, row, facts))
        elif "datasets" in facts:
            tables.append(_vtab_table(name, path, row, facts))
        else:
            _refuse(name, path, "which has no results (yet) of a run, of VTAB or of a study")
    return [*([_runs_table(runs)] if runs else []), *tables]


def _facts(path):
    """Return the settings of a grid that has results; empty for any other directory."""
    file = path / "settings.json"
    if not file.is_file() or not (path / RESULTS).is_file():
        return {}
    return json.loads(file.read_text(encoding="utf-8"))


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


def _vtab_table(name, path, row, facts):
    known = [known for known in _ROWS.get(name, ()) if known.dataset == VTAB]
    recipe, model = find_recipe(facts["recipe"]), None
    if row is not None:
        model = make_model(recipe, facts["model"], DATASETS[TASKS[0]].num_classes, facts["dtype"])
    found = find_row(facts["model"], model, row and row.name)
    if found not in known:
        _refuse(name, path, "results of VTAB for a model that has no row; NAME=PATH names the row")
    rows = list(table_rows([*accuracies_by_seed(path).values()], found))
    groups = [cells for cells in rows if not cells[0].startswith("vtab/")]
    if name == "Table 2":
        # The paper's mean is over all 19 tasks.
        rows = [groups[-1]]
        if " of " in rows[0][0].partition("mean of ")[2]:
            _refuse(name, path, f"the results of a part of the tasks: {rows[0][0]}")
    elif name == "Figure 2":
        rows = groups
    notes = (describe_row(found, recipe),)
    return PaperTable(f"Measured, {path}", table_columns(found), tuple(rows), notes)


def _study_table(name, path, row, facts):
    """Return the table of a study, with what the paper reports of its settings."""
    title = f"study {facts['study']} on {facts['data']}"
    if row is not None:
        _refuse(name, path, f"{title}, whose rows have the names of its settings: leave out NAME=")
    find = _REPORTED.get((name, facts["study"]))
    reported = find(facts["finetune_data"]) if find else {}
    (first, *columns), lines = summary(read_results(path / RESULTS))
    rows = tuple((setting, _find(reported, setting), *cells) for setting, *cells in lines)
    if not any(cells[1] != "-" for cells in rows):
        known = f", which has {', '.join(reported)}" if reported else ""
        _refuse(name, path, f"{title}, none of whose settings is in {name}{known}")
    return PaperTable(f"Measured, {path}: {title}", (first, "reported", *columns), rows)


def _find(reported, setting):
    # The model of a study of position embeddings may be any.
    names = (name for name in reported if name == setting or setting.endswith(f", {name}"))
    return reported.get(next(names, None), "-")


def _of_table_5(data):
    """Return accuracies by model and pre-training set, on the dataset of the fine-tuning."""
    return {
        f"{row.builder}, {row.pretraining}": f"{row} % on {TITLES[data]}"
        for row in paper_results("Table 5")
        if row.dataset == data
    }


def _of_figure_3(data):
    return _of_table_5(data) if data == "imagenet2012" else {}


def _of_table_6(data):
    """Return the accuracies on ImageNet and the compute of the runs of each model."""
    runs = {}
    for row in paper_results("Table 6"):
        if row.dataset in ("imagenet2012", "exaflops"):
            runs.setdefault(row.builder, {}).setdefault(row.setting, []).append(str(row))
    return {
        model: "; ".join(f"{epochs}: {' % and '.join(c)} exaFLOPs" for epochs, c in found.items())
        for model, found in runs.items()
    }


def _of_table_7(data):
    return {
        f"{row.builder}, {row.setting}": f"{row} %, average of 5 datasets"
        for row in paper_results("Table 7")
        if row.dataset == "average"
    }


def _of_table_8(data):
    return {
        row.study: f"{row} (5-shot accuracy on ImageNet, from 0 to 1)"
        for row in paper_results("Table 8")
    }


def _of_figure_4(data):
    """Return the models and shares of JFT-300M that the paper draws."""
    rows = paper_rows("Figure 4")
    images = [int(column.removesuffix("M images")) for column in rows[0] if "M images" in column]
    return {
        f"{row['builder']}, {100 * count / images[-1]:.12g} %": DRAWN
        for row in rows
        for count in images
        if row["builder"] != "-"
    }


# By table and study, a function from the dataset of the fine-tuning to what the paper reports of
# settings.
_REPORTED = {
    ("Table 5", "datasets"): _of_table_5,
    ("Table 6", "scaling"): _of_table_6,
    ("Table 7", "optimizers"): _of_table_7,
    ("Table 8", "positions"): _of_table_8,
    ("Figure 3", "datasets"): _of_figure_3,
    ("Figure 4", "data-size"): _of_figure_4,
    ("Figure 5", "scaling"): _of_table_6,
}
