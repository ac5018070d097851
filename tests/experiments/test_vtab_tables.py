"""Tables of accuracies on VTAB-1k, and the paper's."""

import re

import numpy as np
import pytest

from keras_vit.experiments.reported import TABLE_2, VTAB, find_reported
from keras_vit.experiments.vtab_tables import (
    REPORTED,
    TASKS,
    describe_row,
    find_row,
    mean_accuracies,
    table_rows,
)
from keras_vit.training.recipe import RECIPES
from tests.fixtures.small_runs import smoke


def test_means_by_group():
    accuracies = dict(zip(TASKS, np.arange(19) / 100, strict=True))
    means = mean_accuracies(accuracies)
    # 0 to 6, 7 to 10, 11 to 18; and each task counts once, where the mean of means is 8.67.
    assert [round(100 * mean, 6) for mean, _ in means.values()] == [3, 8.5, 14.5, 9]
    *_, natural, specialized, structured, overall = table_rows(accuracies)
    assert natural == ("natural, mean of 7", "3.00 %")
    assert specialized == ("specialized, mean of 4", "8.50 %")
    assert structured == ("structured, mean of 8", "14.50 %")
    assert overall == ("VTAB-1k, mean of 19", "9.00 %")


@pytest.mark.parametrize("name", REPORTED)
def test_the_papers_tasks_have_the_mean_of_its_table_2(name):
    reported = find_reported(name)
    mean, tasks = mean_accuracies(REPORTED[name])["VTAB-1k"]
    assert tasks == TASKS
    # The values have one decimal.
    assert mean == pytest.approx(reported.accuracy, abs=0.03)
    rows = list(table_rows({task: value / 100 for task, value in REPORTED[name].items()}, reported))
    assert rows[-1] == (
        *("VTAB-1k, mean of 19", f"{mean:.2f} %", str(reported)),
        f"{mean - reported.accuracy:+.2f}",
    )
    assert all(float(row[-1]) == 0 for row in rows[:-1])


def test_columns_of_the_papers_table():
    assert REPORTED["ViT_H14/jft300m/vtab"]["vtab/svhn"] == 88.9
    assert REPORTED["ViT_H14/jft300m/vtab"]["vtab/diabetic_retinopathy"] == 76.6
    assert REPORTED["ViT_L16/jft300m/vtab"]["vtab/dmlab"] == 49.7
    assert REPORTED["ViT_L16/imagenet21k/vtab"]["vtab/smallnorb_elevation"] == 41.7


def test_the_paper_breaks_down_three_of_its_models():
    others = {row.name for row in TABLE_2 if row.dataset == VTAB} - set(REPORTED)
    assert others == {"BiT_R152x4/jft300m/vtab"}
    rows = list(table_rows({"vtab/dtd": 0.5}, find_reported(*others)))
    assert {row[2:] for row in rows} == {("-", "-")}


def test_the_row_that_a_model_tells():
    row = find_reported("ViT_L16/imagenet21k/vtab")
    assert find_row("ViT_L16/imagenet21k") == row
    assert find_row("gs://vit_models/imagenet21k/ViT-L_16.npz") == row
    assert find_row("ViT_B16/imagenet21k") is None
    paper = RECIPES["finetune_vtab"]
    assert "other settings" not in describe_row(row, paper)
    assert describe_row(row, smoke(paper)).endswith(
        "; other settings than the paper's: image_size, batch_size, warmup_steps, steps"
    )


def test_a_table_has_the_deviation_over_the_seeds():
    runs = [{"vtab/dtd": 0.7, "vtab/svhn": 0.9}, {"vtab/dtd": 0.8, "vtab/svhn": 0.9}]
    rows = [row[:2] for row in table_rows(runs, find_row("ViT_L16/imagenet21k"))]
    deviation = 100 * np.std([0.7, 0.8], ddof=1)
    assert rows == [
        ("vtab/dtd", f"75.00 ± {deviation:.2f} %"),
        ("vtab/svhn", "90.00 ± 0.00 %"),
        # The mean of each run first: 80 and 85 %.
        ("natural, mean of 2 of 7", f"82.50 ± {deviation / 2:.2f} %"),
        ("VTAB-1k, mean of 2 of 19", f"82.50 ± {deviation / 2:.2f} %"),
    ]
    # A third run that has no result of the second task yet.
    shorter = list(table_rows([*runs, {"vtab/dtd": 0.75}]))
    assert [re.sub(r" ±.*", "", row[1]) for row in shorter] == ["75.00"] * 3
    assert list(table_rows([runs[0]])) == list(table_rows(runs[0]))
