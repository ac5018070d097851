"""The rows of the paper's results equal a second transcription of its tables."""

import collections
import statistics

import pytest

from keras_vit.experiments.paper_results import paper_results
from keras_vit.experiments.paper_tables import (
    AVERAGED,
    CONTENTS,
    SCALING_STUDY,
    count_exaflops,
    paper_table,
)
from keras_vit.models import find_variant
from tests.experiments.printed import printed_results

TABLES = {number: paper_results(f"Table {number}") for number in (2, 5, 6, 7, 8, 9)}
# The results of each table, N/A among them.
COUNTS = {2: 7 * 4 + 3 + 5, 5: 6 * (4 + 5 + 5), 6: 18 * 7, 7: 6 * 4, 8: 4 * 3, 9: 3 * 20}


def as_printed(row):
    value = row.printed + ("k" if row.dataset == "tpu_days" else "")
    return row.model, row.pretraining, row.dataset, row.setting, value, row.printed_std


@pytest.mark.parametrize("number", TABLES)
def test_each_result_is_the_printed_one(number):
    printed = list(printed_results(number))
    assert len(printed) == COUNTS[number]
    numbers = collections.Counter(row for row in printed if row[4] != "N/A")
    assert collections.Counter(map(as_printed, TABLES[number])) == numbers
    assert {row.source for row in TABLES[number]} == {f"Table {number}"}


@pytest.mark.parametrize("number", TABLES)
def test_rows_name_builders_that_there_are(number):
    assert all(find_variant(row.builder) for row in TABLES[number] if row.builder)
    others = {row.model for row in TABLES[number] if row.builder is None}
    assert others == ({"Noisy Student (EfficientNet-L2)"} if number == 2 else set())


@pytest.mark.parametrize("number", TABLES)
def test_the_printed_table_has_each_number(number):
    """Each is as often in the cells as in the second transcription."""
    shown = [cell for row in paper_table(f"Table {number}").rows for cell in row[1:]]
    parts = collections.Counter(
        part.replace(",", "") for cell in shown for part in cell.replace(" / ", " ± ").split(" ± ")
    )
    wanted = collections.Counter(
        text.removesuffix("k") for row in printed_results(number) for text in row[4:] if text
    )
    assert wanted - parts == {}


@pytest.mark.parametrize(
    ("name", "row", "column", "cell"),
    [
        ("Table 2", "ImageNet", "Noisy Student (EfficientNet-L2)", "88.4 / 88.5"),
        ("Table 2", "VTAB (19 tasks)", "ViT-L/16, ImageNet-21k", "72.72 ± 0.21"),
        ("Table 3", "R50+ViT-L/16", "its settings", "14, 4e-4, linear, 0.1, 0.0"),
        ("Table 4", "CIFAR-100, CIFAR-10", "its base LR", "0.001, 0.003, 0.01, 0.03"),
        ("Table 5", "ImageNet-21k, CIFAR-100", "ViT-L/32", "93.04"),
        ("Table 6", "R50x2", "counted", "198.9"),
        ("Table 7", "CIFAR-100", "ResNet50, SGD", "85.17"),
        ("Table 8", "Rel. Pos. Emb.", "Every Layer-Shared", "N/A"),
        ("Table 9", "vtab/dmlab", "ViT-L/16, JFT-300M", "49.7"),
        # (95.3 + 85.5 + 75.2 + 99.7 + 97.2 + 65.0 + 88.9) / 7
        ("Figure 2", "ViT-H/14", "natural", "86.7"),
        ("Figure 3", "ViT-B/32", "ImageNet-21k", "81.28"),
        ("Figure 4", "ViT-B/32 against R50x1", "9M images", "much worse"),
        # (82.12 + 98.29 + 89.20 + 93.43 + 97.02) / 5
        ("Figure 5", "R50x2", "average of 5 datasets", "92.01"),
    ],
)
def test_a_table_has_the_cell(name, row, column, cell):
    table = paper_table(name)
    lines = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    assert lines[row][column] == cell


def test_averages_are_over_five_datasets():
    """The means of Table 7."""
    columns = collections.defaultdict(dict)
    for row in TABLES[7]:
        columns[row.model, row.setting][row.dataset] = row.value
    for values in columns.values():
        assert set(values) == {*AVERAGED, "average"}
        mean = statistics.mean(values[dataset] for dataset in AVERAGED)
        assert mean == pytest.approx(values["average"], abs=0.0051)


def test_every_table_and_figure_is_there():
    names = [f"Table {number}" for number in range(1, 10)]
    assert list(CONTENTS) == names + [f"Figure {number}" for number in range(2, 6)]
    for name in CONTENTS:
        table = paper_table(name)
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("run", SCALING_STUDY, ids=lambda run: f"{run[0]}, {run[2]}")
def test_operations_of_the_scaling_study(run):
    """The paper's compute: 303M images of 18k classes per epoch, 3 forward passes per step."""
    # Rounding explains a part of the first two; the third is reported 3 % above half of the run of
    # 14 epochs.
    known = {("ViT-B/32", 7): 1.023, ("R50x1", 7): 1.014, ("R50x1+ViT-L/16", 7): 0.969}
    model, builder, epochs = run
    reported = SCALING_STUDY[run]["exaflops"].value
    ratio = known.get((model, epochs), 1)
    assert count_exaflops(builder, epochs) == pytest.approx(ratio * reported, rel=0.007)
