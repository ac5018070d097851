"""Figures of studies: what is drawn at which place."""

import matplotlib.figure
import pytest

from keras_vit.inspection.figures.charts import draw_data_sizes, draw_scaling, draw_study

ACCURACIES = {"a": [0.5, 0.7], "b": [0.9]}


@pytest.fixture
def axes(monkeypatch):
    """The axes of the figures that are saved."""
    found, save = [], matplotlib.figure.Figure.savefig

    def saved(figure, *arguments, **options):
        found.extend(figure.axes)
        save(figure, *arguments, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", saved)
    return found


def points(axis):
    return sorted(tuple(place) for drawn in axis.collections for place in drawn.get_offsets())


def test_settings_side_by_side(axes, tmp_path):
    others = {"a": [0.2, 0.4], "b": [None]}
    panels = {"Test accuracy (%)": ACCURACIES, "5-shot accuracy (%)": others}
    draw_study(panels, "Poolings", tmp_path / "study.png")
    axis, second = axes
    assert [axis.get_ylabel() for axis in axes] == list(panels)
    drawn = {(x, round(y)) for x, y in points(second)}
    assert {(0, 20), (0, 40)} <= drawn and 1 not in {x for x, _ in drawn}
    assert [label.get_text() for label in second.get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axis.texts] == ["60.0", "90.0"]
    assert {(0, 50), (0, 70), (1, 90)} <= {(x, round(y)) for x, y in points(axis)}


def test_models_by_their_compute(axes, tmp_path):
    draw_scaling({"a": 0.01, "b": 0.2}, ACCURACIES, "Scaling", tmp_path / "study.png")
    (axis,) = axes
    assert axis.get_xscale() == "log"
    assert {(0.01, 60), (0.2, 90)} <= {(x, round(y)) for x, y in points(axis)}


def test_models_by_their_images(axes, tmp_path):
    runs = [("a", 30, 0.4), ("a", 30, 0.6), ("a", 100, 0.8), ("b", 30, 0.2)]
    rows = [
        {"model": model, "images": images, "fewshot": accuracy, "accuracy": accuracy / 2}
        for model, images, accuracy in runs
    ]
    panels = {"5-shot accuracy (%)": "fewshot", "Test accuracy (%)": "accuracy"}
    draw_data_sizes(rows, panels, "Data size", tmp_path / "study.png")
    assert [axis.get_ylabel() for axis in axes] == list(panels)
    for axis, factor in zip(axes, (100, 50), strict=True):
        a, b = axis.lines
        assert list(a.get_xdata()) == [30, 100] and list(b.get_xdata()) == [30]
        assert list(a.get_ydata()) == pytest.approx([0.5 * factor, 0.8 * factor])
        assert len(points(axis)) == 4
        assert [label.get_text() for label in axis.get_xticklabels()] == ["30", "100"]
