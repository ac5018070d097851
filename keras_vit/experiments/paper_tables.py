"""The tables and figures of the ViT paper (arXiv 2010.11929), with our counts and recipes."""

import dataclasses
import statistics

from keras_vit.core.arguments import check_choice
from keras_vit.evaluation.costs import count_parameters, count_training_exaflops
from keras_vit.experiments.paper_results import TITLES, paper_results, paper_rows
from keras_vit.experiments.vtab_tables import mean_accuracies
from keras_vit.models.variants import find_variant
from keras_vit.training.recipe import RECIPES

CONTENTS = {row["source"]: row["title"] for row in paper_rows("contents")}
# The datasets that Table 7 averages over. Figure 5 shows an average "over 5 datasets".
AVERAGED = tuple(dict.fromkeys(row.dataset for row in paper_results("Table 7")))[:-1]
# The numbers of images and classes of JFT-300M.
NUM_IMAGES, NUM_CLASSES = 303e6, 18_000


def _scaling_study():
    runs = {}
    for row in paper_results("Table 6"):
        run = row.model, row.builder, int(row.setting.removesuffix(" epochs"))
        runs.setdefault(run, {})[row.dataset] = row
    return runs


# The runs of Table 6, pre-trained on JFT-300M (section 4.4): from `(model, builder, epochs)` to a
# dictionary from datasets to results.
SCALING_STUDY = _scaling_study()


def count_exaflops(builder, epochs):
    """Return the exaFLOPs of pre-training a model on JFT-300M.

    Example:
    >>> round(count_exaflops("ViT_B16", 7))
    224
    """
    return count_training_exaflops(find_variant(builder), NUM_IMAGES, epochs, NUM_CLASSES)


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table to be printed.

    Args:
        title: title of the table.
        columns: titles of the columns.
        rows: the rows, tuples of strings.
        notes: lines to be printed below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def paper_table(name: str) -> PaperTable:
    """Return a table or figure of the paper as a table of strings.

    Args:
        name: `"Table 1"` to `"Table 9"`, or `"Figure 2"` to `"Figure 5"`.

    Returns:
        A `PaperTable`: `title`, `columns`, `rows` and `notes`.

    Raises:
        ValueError: if there is no table or figure of that name.

    Reference:
        The ViT paper (arXiv 2010.11929).

    Example:
    >>> paper_table("Figure 3").rows[0]
    ('ViT-B/16', '77.91', '83.97', '84.15')
    """
    check_choice("name", name, tuple(CONTENTS))
    columns, *rows = _pivot(*_PIVOTS[name]) if name in _PIVOTS else _TABLES[name]()
    notes = (row["note"] for row in paper_rows("notes") if name in row["source"].split("; "))
    title = f"{name} of the ViT paper (arXiv 2010.11929): {CONTENTS[name]}"
    return PaperTable(title, columns, tuple(rows), tuple(notes))


def _pivot(results, corner, row_of, column_of, missing="-"):
    """Arrange results in a table: yield the column titles, then the rows.

    `row_of` and `column_of` are functions from a result to the title of its row and column, and
    `corner` is the title of the first column. Rows and columns are in the order of the results.
    Several results in one cell are joined by ` / `. `missing` fills cells without a result.
    """
    cells, columns = {}, {}
    for result in results:
        columns[column_of(result)] = None
        cells.setdefault(row_of(result), {}).setdefault(column_of(result), []).append(str(result))
    yield corner, *columns
    for title, of_row in cells.items():
        yield title, *(" / ".join(of_row.get(column, [missing])) for column in columns)


def _dataset(result):
    return TITLES[result.dataset]


def _table_1():
    """Yield the sizes of models, with the parameters that this package counts."""
    *printed, _ = tuple(paper_rows("Table 1")[0])[1:]
    yield *printed, "builder", "counted", "counted, no head"
    for row in paper_rows("Table 1"):
        for builder in row["builders"].split():
            variant = find_variant(builder)
            counted = [f"{count_parameters(variant, n) / 1e6:.1f}M" for n in (1000, 0)]
            yield *(row[column] for column in printed), builder, *counted


def _table_3():
    """Yield the settings of pre-training, with the recipes of this package."""
    *printed, _ = tuple(paper_rows("Table 3")[0])[1:]
    yield *printed, "recipe", "its settings"
    for row in paper_rows("Table 3"):
        cells = [row[column] for column in printed]
        cells[1] = TITLES[row["pre-training"]]
        for name in row["recipes"].split():
            recipe = RECIPES[name]
            # 8e-4, as in the paper, not 8e-04.
            rate = f"{recipe.learning_rate:.0e}".replace("e-0", "e-")
            settings = recipe.epochs, rate, recipe.decay, recipe.weight_decay, recipe.dropout
            yield *cells, name, ", ".join(map(str, settings))


def _table_4():
    """Yield the settings of fine-tuning, with the recipes of this package."""
    yield "datasets", "steps", "base LR", "recipe", "its steps", "its base LR"
    for row in paper_rows("Table 4"):
        for name in row["recipes"].split():
            recipe = RECIPES[name]
            rates = recipe.learning_rates or (recipe.learning_rate,)
            settings = f"{recipe.steps:,}", ", ".join(f"{rate:g}" for rate in rates)
            yield row["datasets"], row["steps"], row["base LR"], name, *settings


def _table_6():
    """Yield accuracies and compute, with the compute that this package counts."""
    datasets = tuple(dict.fromkeys(row.dataset for row in paper_results("Table 6")))
    titles = (TITLES[dataset] for dataset in datasets)
    yield "model", "builder", "epochs", *titles, "counted", "counted / reported"
    for (model, builder, epochs), results in SCALING_STUDY.items():
        counted = count_exaflops(builder, epochs)
        ours = f"{counted:,.1f}", f"{counted / results['exaflops'].value:.3f}"
        cells = (str(results[dataset]) if dataset in results else "-" for dataset in datasets)
        yield model, builder, str(epochs), *cells, *ours


def _figure_2():
    """Yield accuracies on groups of VTAB tasks.

    The mean of all tasks is from Table 2. The groups of ViT-H/14 are computed from Table 9.
    """
    tasks = [r for r in paper_results("Table 9") if r.title == "ViT-H/14, JFT-300M"]
    groups = mean_accuracies({result.dataset: result.value for result in tasks})
    means = {r.model: str(r) for r in paper_results("Table 2") if r.dataset == "vtab"}
    yield tuple(paper_rows("Figure 2")[0])[1:]
    for row in paper_rows("Figure 2"):
        computed = {group: f"{mean:.1f}" for group, (mean, _) in groups.items()}
        computed |= {"model": row["model"], TITLES["vtab"]: means.get(row["model"])}
        yield tuple(cell or computed[column] for column, cell in row.items() if column != "source")


def _figure_4():
    """Yield few-shot accuracies by the number of pre-training images, as the text reports them."""
    yield tuple(paper_rows("Figure 4")[0])[1:]
    yield from (tuple(row.values())[1:] for row in paper_rows("Figure 4"))


def _figure_5():
    """Yield accuracies by the compute of pre-training."""
    yield "model", "epochs", "exaFLOPs", "counted", "average of 5 datasets", "ImageNet"
    for (model, builder, epochs), results in SCALING_STUDY.items():
        average = statistics.mean(results[dataset].value for dataset in AVERAGED)
        counted = f"{count_exaflops(builder, epochs):,.1f}"
        cells = str(results["exaflops"]), counted, f"{average:.2f}", str(results["imagenet2012"])
        yield model, str(epochs), *cells


# Functions that yield the column titles, then the rows.
_TABLES = {
    "Table 1": _table_1,
    "Table 3": _table_3,
    "Table 4": _table_4,
    "Table 6": _table_6,
    "Figure 2": _figure_2,
    "Figure 4": _figure_4,
    "Figure 5": _figure_5,
}
# Arguments of `_pivot`, for tables that contain only numbers of the paper.
_PIVOTS = {
    "Table 2": (paper_results("Table 2"), "dataset", _dataset, lambda row: row.title),
    "Table 5": (
        *(paper_results("Table 5"), "pre-training, dataset"),
        lambda row: f"{TITLES[row.pretraining]}, {_dataset(row)}",
        lambda row: row.model,
    ),
    "Table 7": (
        *(paper_results("Table 7"), "dataset", _dataset),
        lambda row: f"{row.model}, {row.setting}",
    ),
    "Table 8": (
        *(paper_results("Table 8"), "position embedding"),
        lambda row: row.setting.partition(", ")[0],
        lambda row: row.setting.partition(", ")[2],
        "N/A",
    ),
    "Table 9": (
        *(paper_results("Table 9"), "task"),
        lambda row: "mean" if row.dataset == "vtab" else row.dataset,
        lambda row: row.title,
    ),
    "Figure 3": (
        *(tuple(row for row in paper_results("Table 5") if row.dataset == "imagenet2012"), "model"),
        lambda row: row.model,
        lambda row: TITLES[row.pretraining],
    ),
}
