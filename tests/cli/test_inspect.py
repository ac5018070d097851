"""The images of `keras-vit inspect`; the figures are tested with the report."""

import pathlib

import pytest

from keras_vit.cli.inspect import Inspect


@pytest.mark.parametrize(
    ("count", "expected"),
    [(100, {"cat": 10, "dog": 10}), (4, {"cat": 2, "dog": 2}), (1, {"cat": 1})],
)
def test_folders_are_taken_evenly(count, expected, photos):
    files = Inspect("m.keras", pathlib.Path("seen"), images=(photos,), count=count)._files()
    assert len({*files}) == len(files) == sum(expected.values())
    classes = [file.parent.name for file in files]
    assert {name: classes.count(name) for name in classes} == expected


def test_files_are_taken_as_they_are_named(photos):
    named = tuple(photos / "dog" / name for name in ("1.jpg", "0.jpg"))
    assert tuple(Inspect("m.keras", pathlib.Path("seen"), images=named)._files()) == named
