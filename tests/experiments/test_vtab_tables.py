"""Tables of accuracies on VTAB-1k, and the paper's."""

import numpy as np
import pytest

from keras_vit.experiments.reported import find_reported
from keras_vit.experiments.vtab_tables import REPORTED, TASKS, find_row, mean_accuracies, table_rows


def test_means_by_group():
    accuracies = dict(zip(TASKS, np.arange(19) / 100, strict=True))
    means = mean_accuracies(accuracies)
    # 0 to 6, 7 to 10, 11 to 18; and each task counts once, where the mean of means is 8.67.
    assert [round(100 * mean, 6) for mean, _ in means.values()] == [3, 8.5, 14.5, 9]
    rows = list(table_rows(accuracies))
    assert rows[-2:] == [("structured, mean of 8", "14.50 %"), ("VTAB-1k, mean of 19", "9.00 %")]


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


def test_the_row_of_a_model_is_found_by_its_checkpoint():
    row = find_reported("ViT_L16/imagenet21k/vtab")
    assert find_row("ViT_L16/imagenet21k") == row
    assert find_row("gs://vit_models/imagenet21k/ViT-L_16.npz") == row
    assert find_row("ViT_B16/imagenet21k") is None
    with pytest.raises(ValueError, match="of VTAB and of the model's architecture"):
        find_row("model.keras", None, "ViT_L16/jft300m/vtab")


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
