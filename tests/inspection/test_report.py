"""The figures, and the page that shows them."""

import base64
import pathlib
import re

import matplotlib.figure
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection.figures.drawing import as_picture
from keras_vit.inspection.figures.model_figures import draw_rollout, upsample
from keras_vit.inspection.report import write_report
from keras_vit.models import vision_transformer
from tests.fixtures.commands import run
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import small_classifier
from tests.fixtures.tiny import TINY, images

ATTENTION = ["attention_distance.png", "rollout.png", "patch_colors.png", "token_norms.png"]
ATTENTION += ["heads.png"]


def figures_on(page):
    """The pictures that a page holds, as they would be in files."""
    return [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", page.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"image_size": (2, 20), "patch_size": 1},
            ["filters.png", "position_similarity.png", *ATTENTION],
        ),
        (
            {"patch_size": 16, "depth": 1, "position_embedding": "none"},
            ["filters.png", *ATTENTION],
        ),
    ],
    ids=["many patches", "one patch, no positions"],
)
def test_the_page_holds_the_figures_that_a_model_has(options, expected, tmp_path):
    model = vision_transformer(**{**TINY, **options})
    page = write_report(model, images(3, *model.input_shape[1:]), tmp_path / "new" / "seen")
    assert page == tmp_path / "new" / "seen" / "index.html"
    written = sorted(path.name for path in page.parent.iterdir())
    assert written == sorted([*expected, "index.html"])
    for data, file in zip(figures_on(page), expected, strict=True):
        assert (page.parent / file).read_bytes() == data


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0], [0.5, 0.5, 0.5]),
        ([-1.0, 0.0], [0.25, 0.25, 0.25]),
        ([-1.0, 0.0, 1.0], [0.0, 0.5, 1.0]),
        ([-1.0, 0.0, 1.0, 0.5], [0.0, 0.5, 1.0]),
    ],
    ids=len,
)
def test_pictures_of_any_number_of_channels(values, expected):
    np.testing.assert_array_equal(as_picture(np.full((1, 1, len(values)), values)), [[expected]])


@pytest.mark.slow
@pytest.mark.parametrize("channels", [2, 13])
def test_a_page_of_other_channels(channels, tmp_path):
    model = vision_transformer(**{**TINY, "image_channels": channels})
    assert len(figures_on(write_report(model, images(2, 16, 16, channels), tmp_path))) == 7


@pytest.mark.slow
def test_command(tmp_path, capsys):
    vision_transformer(**{**TINY, "image_size": 8, "depth": 1}).save(tmp_path / "m.keras")
    (tmp_path / "photo.png").write_bytes(encode(random_image()))
    out = tmp_path / "seen"
    command = ["inspect", tmp_path / "m.keras", "--out", out]
    assert str(out / "index.html") in run(capsys, *command, "--images", tmp_path / "photo.png")
    run(capsys, *command, "--data", "digits", "--count", "5")
    assert "attention distance over 5 images" in (out / "index.html").read_text()


def test_maps_of_patches_lie_over_their_patches():
    """Between the centres of two patches of 4 pixels, 2 and 6, values rise linearly."""
    large = upsample(np.array([[0.0, 1.0]]), (4, 8))
    np.testing.assert_allclose(large[0], [0, 0, 0.125, 0.375, 0.625, 0.875, 1, 1])
    np.testing.assert_allclose(large, np.repeat(large[:1], 4, axis=0))


def test_pictures_of_others_stay(tmp_path):
    (tmp_path / "heads.png").write_bytes(b"my own")
    model = keras_vit.resnet((1,), width=32, num_classes=2, image_size=32)
    write_report(model, images(1, 32, 32, 3), tmp_path)
    assert (tmp_path / "heads.png").read_bytes() == b"my own"


@pytest.mark.slow
def test_figures_of_another_model_are_removed(tmp_path):
    write_report(vision_transformer(**TINY), images(1, 16, 16, 3), tmp_path)
    (tmp_path / "mine.png").write_bytes(b"my own")
    model = keras_vit.resnet((1,), width=32, num_classes=2, image_size=32)
    page = write_report(model, images(1, 32, 32, 3), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["filters.png", "mine.png"]
    assert len(figures_on(page)) == 1


def test_a_page_of_others_is_not_replaced(tmp_path):
    page = tmp_path / "index.html"
    page.write_text("my own")
    with pytest.raises(ValueError, match="`directory` must not contain an index.html"):
        write_report(vision_transformer(**TINY), images(1, 16, 16, 3), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert page.read_text() == "my own"


@pytest.mark.slow
def test_a_figure_is_replaced_by_a_complete_one(tmp_path, monkeypatch):
    page = write_report(vision_transformer(**TINY), images(1, 16, 16, 3), tmp_path)
    before = {path: path.read_bytes() for path in page.parent.iterdir()}

    def half(figure, path, **options):
        pathlib.Path(path).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", half)
    with pytest.raises(OSError, match=r"filters.png' could not be written: No space left"):
        write_report(vision_transformer(**TINY), images(1, 16, 16, 3), tmp_path)
    assert {path: path.read_bytes() for path in page.parent.iterdir()} == before


@pytest.mark.slow
def test_the_rollout_names_the_most_likely_class(tmp_path, monkeypatch):
    drawn = []

    def draw(pictures, rollout, path, titles):
        drawn.append(titles)
        draw_rollout(pictures, rollout, path, titles)

    monkeypatch.setattr("keras_vit.inspection.report.draw_rollout", draw)
    model = small_classifier("token")
    pictures = images(3, *model.input_shape[1:])
    most_likely = model.predict(pictures, verbose=0).argmax(-1)
    for names in (None, (r"$\a$", r"$\b$", r"$\c$")):
        model.class_names = names
        write_report(model, pictures, tmp_path / "seen")
    assert drawn == [None, [names[number] for number in most_likely]]
