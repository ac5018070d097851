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
    return {(x, round(y)) for drawn in axis.collections for x, y in drawn.get_offsets()}


def test_settings_side_by_side(axes, tmp_path):
    panels = {"Test accuracy (%)": ACCURACIES, "5-shot accuracy (%)": {"a": [0.2], "b": [None]}}
    draw_study(panels, "Poolings", tmp_path / "study.png")
    first, second = axes
    assert [label.get_text() for label in second.get_xticklabels()] == ["a", "b"]
    assert {(0, 50), (0, 70), (1, 90)} <= points(first)
    assert {x for x, _ in points(second)} == {0}


def test_models_by_their_compute(axes, tmp_path):
    draw_scaling({"a": 0.01, "b": 0.2}, ACCURACIES, "Scaling", tmp_path / "study.png")
    assert {(0.01, 60), (0.2, 90)} <= points(axes[0])


def test_models_by_their_images(axes, tmp_path):
    runs = [("a", 30, 0.4), ("a", 30, 0.6), ("a", 100, 0.8), ("b", 30, 0.2)]
    rows = [
        {"model": model, "images": images, "fewshot": accuracy, "accuracy": accuracy / 2}
        for model, images, accuracy in runs
    ]
    panels = {"5-shot accuracy (%)": "fewshot", "Test accuracy (%)": "accuracy"}
    draw_data_sizes(rows, panels, "Data size", tmp_path / "study.png")
    for axis, factor in zip(axes, (100, 50), strict=True):
        a, b = axis.lines
        assert list(a.get_xdata()) == [30, 100] and list(b.get_xdata()) == [30]
        assert list(a.get_ydata()) == pytest.approx([0.5 * factor, 0.8 * factor])
