"""The rows of the paper's results equal a second transcription of its tables."""

import collections
import statistics

import pytest

from keras_vit.experiments.paper_results import TITLES, paper_results
from keras_vit.experiments.paper_tables import (
    AVERAGED,
    CONTENTS,
    SCALING_STUDY,
    count_exaflops,
    paper_table,
)
from keras_vit.experiments.vtab_tables import TASKS
from keras_vit.models import find_variant
from tests.experiments.printed import PRETRAINING, printed_results, read_printed

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
def test_rows_name_what_there_is(number):
    for row in TABLES[number]:
        assert row.dataset in (*TITLES, *TASKS)
        assert row.pretraining in PRETRAINING.values()
        assert row.builder is None or find_variant(row.builder)
    names = [row.name for row in TABLES[number]]
    # Noisy Student has two accuracies on ImageNet.
    assert len(names) - len(set(names)) == (number == 2)
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
        ("Table 2", "CIFAR-100", "Noisy Student (EfficientNet-L2)", "-"),
        ("Table 2", "ImageNet ReaL", "BiT-L R152x4, JFT-300M", "90.54"),
        ("Table 2", "VTAB (19 tasks)", "ViT-L/16, ImageNet-21k", "72.72 ± 0.21"),
        ("Table 2", "TPUv3-core-days, thousands", "ViT-L/16, JFT-300M", "0.68"),
        ("Table 5", "ImageNet-21k, CIFAR-100", "ViT-L/32", "93.04"),
        ("Table 5", "ImageNet, CIFAR-10", "ViT-H/14", "-"),
        ("Table 6", "R200x3", "Oxford-IIIT Pets", "96.32"),
        ("Table 6", "R50x2", "counted", "198.9"),
        ("Table 7", "CIFAR-100", "ResNet50, SGD", "85.17"),
        ("Table 8", "2-D Pos. Emb.", "Every Layer", "0.64046"),
        ("Table 8", "Rel. Pos. Emb.", "Every Layer-Shared", "N/A"),
        ("Table 9", "vtab/dmlab", "ViT-L/16, JFT-300M", "49.7"),
        ("Table 9", "mean", "ViT-L/16, ImageNet-21k", "72.7"),
        ("Figure 2", "ViT-H/14", "VTAB (19 tasks)", "77.63 ± 0.23"),
        # (95.3 + 85.5 + 75.2 + 99.7 + 97.2 + 65.0 + 88.9) / 7
        ("Figure 2", "ViT-H/14", "natural", "86.7"),
        ("Figure 2", "BiT-L R152x4", "VTAB (19 tasks)", "76.29 ± 1.70"),
        ("Figure 2", "BiT-L R152x4", "structured", "drawn, not printed"),
        ("Figure 2", "S4L", "VTAB (19 tasks)", "drawn, not printed"),
        ("Figure 3", "ViT-B/32", "ImageNet-21k", "81.28"),
        ("Figure 4", "ViT-b/32", "300M images", "drawn, not printed"),
        ("Figure 4", "ViT-B/32 against R50x1", "9M images", "much worse"),
        ("Figure 4", "ViT-B/32 against R50x1", "90M images", "better"),
        # (82.12 + 98.29 + 89.20 + 93.43 + 97.02) / 5
        ("Figure 5", "R50x2", "average of 5 datasets", "92.01"),
    ],
)
def test_a_cell(name, row, column, cell):
    table = paper_table(name)
    lines = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    assert lines[row][column] == cell


def test_averages_are_over_five_datasets():
    """The means of Table 7, and Figure 5's as far as Table 7 has them."""
    columns = collections.defaultdict(dict)
    for row in TABLES[7]:
        columns[row.model, row.setting][row.dataset] = row.value
    for values in columns.values():
        assert set(values) == {*AVERAGED, "average"}
        mean = statistics.mean(values[dataset] for dataset in AVERAGED)
        assert mean == pytest.approx(values["average"], abs=0.0051)
    by_model = {row[0]: row[4] for row in paper_table("Figure 5").rows if row[1] == "7"}
    assert (by_model["R50x1"], by_model["R152x2"]) == ("89.33", "94.01")


def test_table_6_repeats_table_5_but_for_one_model():
    """ViT-H/14 has other numbers in it, which the tables say."""
    longest = {row.model: row.setting for row in TABLES[6]}
    in_table_6 = {
        (row.model, row.dataset): row.value
        for row in TABLES[6]
        if row.setting == longest[row.model]
    }
    in_table_5 = [row for row in TABLES[5] if row.pretraining == "jft300m"]
    pairs = {row: (row.value, in_table_6[row.model, row.dataset]) for row in in_table_5}
    different = {row.dataset: values for row, values in pairs.items() if values[0] != values[1]}
    assert {row.model for row, values in pairs.items() if values[0] != values[1]} == {"ViT-H/14"}
    assert different == {
        "imagenet2012": (88.04, 88.08),
        "imagenet2012_real": (90.33, 90.36),
        "cifar100": (94.55, 94.71),
        "oxford_flowers102": (99.68, 99.71),
        "oxford_iiit_pet": (97.56, 97.11),
    }
    for name in ("Table 2", "Table 5", "Table 6", "Figure 3", "Figure 5"):
        note = paper_table(name).notes[-1]
        assert "ImageNet 88.55, 88.04, 88.08; ImageNet ReaL 90.72, 90.33, 90.36;" in note
        assert "Oxford-IIIT Pets 97.56, 97.56, 97.11;" in note


def test_every_table_and_figure_is_there():
    names = [f"Table {number}" for number in range(1, 10)]
    assert list(CONTENTS) == names + [f"Figure {number}" for number in range(2, 6)]
    for name in CONTENTS:
        table = paper_table(name)
        assert table.title.startswith(f"{name} of the ViT paper (arXiv 2010.11929): ")
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)
    with pytest.raises(ValueError, match="`name` must be one of .*'Table 10'"):
        paper_table("Table 10")
    assert len(read_printed(9)) == 3 * (len(TASKS) + 1)


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


def test_the_scaling_study_names_its_models():
    for model, builder, _ in SCALING_STUDY:
        name = model.replace("R50x1+ViT-", "R50_").replace("ViT-", "ViT_").replace("/", "")
        assert builder == (name if "_" in name else f"BiT_{name}")
