"""Names of files, from which the names of outputs are made."""

import collections

import pytest

from keras_vit.data.sources.listing import describe_left_out, short_names


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/x.jpg", "../b/x.jpg"], ["here/a/x.jpg", "b/x.jpg"]),
        (["../b/x.jpg", "../b/../c/x.jpg"], ["b/x.jpg", "c/x.jpg"]),
        (["a/x.jpg", "a/y.jpg"], ["x.jpg", "y.jpg"]),
    ],
)
def test_names_do_not_lead_out_of_a_folder(files, names, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert list(short_names(files).values()) == names


def test_relative_and_absolute_paths_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = short_names(["a/x.jpg", str(tmp_path / "b" / "x.jpg")])
    assert list(names.values()) == ["a/x.jpg", "b/x.jpg"]


def test_a_suffix_does_not_color_the_terminal():
    text = describe_left_out(collections.Counter({"not an image (.\x1b[31m)": 1}))
    assert text == r"1 file or folder is left out: 1 not an image (.\x1b[31m)"
