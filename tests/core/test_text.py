"""Text of unknown origin, for people: in a terminal, and in CSV files that spreadsheets open."""

import csv

import numpy as np
import pytest

from keras_vit.cli.command import plain_table
from keras_vit.core.files import csv_text, read_csv, write_csv
from keras_vit.evaluation.metrics import write_confusion

FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''=1"]
PLAIN = ["cat", "", "a=b", "a\r=1", "-0.5", "+3e-4", "'cat'", "ViT_Ti16(depth=6), none"]


@pytest.mark.parametrize("text", FORMULAS)
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text):
    assert csv_text(text) == f"'{text}"


@pytest.mark.parametrize("text", FORMULAS + PLAIN)
def test_what_is_read_again_is_what_was_written(text, tmp_path):
    write_csv(tmp_path / "table.csv", [{"setting": text, "accuracy": -0.5}])
    assert read_csv(tmp_path / "table.csv") == [{"setting": text, "accuracy": "-0.5"}]


def test_names_of_classes_in_a_confusion_matrix(tmp_path):
    write_confusion(np.eye(2, dtype=int), ["=1+1", "dog"], tmp_path / "confusion.csv")
    with (tmp_path / "confusion.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["class", "'=1+1", "dog"], ["'=1+1", "1", "0"], ["dog", "0", "1"]]


def test_names_in_a_table_do_not_color_the_terminal():
    lines = plain_table(("class", "images"), [("\x1b[31mcat", "1"), ("dog", "12")]).splitlines()
    assert lines == ["class        images", r"\x1b[31mcat       1", "dog              12"]
