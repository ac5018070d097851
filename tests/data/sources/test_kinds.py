"""Tests of the table of kinds of datasets."""

import inspect
import pathlib
import sys
import types

import pytest

from keras_vit.cli.data import Data
from keras_vit.cli.train import Train
from keras_vit.data.pipeline import find_source, load
from keras_vit.data.sources import kinds
from keras_vit.data.sources.kinds import KINDS, SourceKind, absolute_name
from keras_vit.data.sources.source import digits

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "data.md"
PLACES = {
    "cli/data.py": lambda: inspect.getsource(Data),
    "cli/train.py": lambda: inspect.getsource(Train),
    "docs/data.md": PAGE.read_text,
    "data/pipeline.py": lambda: load.__doc__.replace('"', "`"),
}


@pytest.mark.parametrize("place", PLACES)
def test_help_and_pages_name_every_kind(place):
    text = PLACES[place]()
    # A test set is no data to train on.
    rows = [row for row in KINDS.values() if place != "cli/train.py" or "train" in row.splits]
    assert [row.name for row in rows if f"`{row.name}" not in text] == []


def test_a_new_kind_is_one_file_and_one_row(monkeypatch, tmp_path):
    """Its data is loaded, named in errors, kept absolute in records and digested."""
    module = types.ModuleType("keras_vit.data.sources.half")
    module.find = lambda path, split, shard, classes=None: digits(split, classes, shard)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = SourceKind("half", "half:find", ("classes",), "FILE", is_path=True)
    monkeypatch.setitem(kinds.KINDS, "half", row)
    dataset = load("half:a.txt", "test", 16, 32, classes=("0", "1"))
    assert dataset.info.class_names == ("0", "1")
    assert absolute_name(f"half:{tmp_path}/../a") == f"half:{tmp_path.parent}/a"
    digests = [find_source(name, "test").digest() for name in ("half:a", "digits")]
    assert digests[0] == digests[1]
    with pytest.raises(ValueError, match="`half:FILE`"):
        find_source("halves", "test")
