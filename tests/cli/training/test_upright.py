"""Photographs with an EXIF orientation, which commands turn with `--upright`."""

import json

import pytest
from PIL import Image, ImageOps

from keras_vit.cli import main
from tests.fixtures.commands import run, train_arguments
from tests.fixtures.images import random_image
from tests.fixtures.models import small_classifier

pytestmark = pytest.mark.backends("tensorflow", reason="images are the same on every backend")
ALL = ("--split", "train+validation+test")


@pytest.fixture
def photos(tmp_path):
    """The same photographs, stored on their side and upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for index in range(36):
        path = tmp_path / "turned" / "abc"[index % 3] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random_image(12, 20, seed=index)).save(path, exif=exif)
        upright = tmp_path / "upright" / path.relative_to(tmp_path / "turned")
        upright.parent.mkdir(parents=True, exist_ok=True)
        ImageOps.exif_transpose(Image.open(path)).save(upright)
    return tmp_path


@pytest.mark.slow
def test_evaluate_turns_photographs(photos, capsys):
    model = small_classifier("token")
    model.class_names = ("a", "b", "c")
    model.save(photos / "model.keras")
    evaluate = ("evaluate", photos / "model.keras", *ALL, "--data")
    expected = run(capsys, *evaluate, f"folder:{photos}/upright")
    assert run(capsys, *evaluate, f"folder:{photos}/turned", "--upright") == expected
    assert run(capsys, *evaluate, f"folder:{photos}/turned") != expected


@pytest.mark.slow
def test_fewshot_turns_photographs_and_has_a_cache_of_each(photos, capsys):
    small_classifier("token").save(photos / "best.keras")
    fewshot = ("fewshot", photos / "best.keras", "--shots", "1", "2", "--data")
    cache = ("--cache", photos / "cache")
    expected = run(capsys, *fewshot, f"folder:{photos}/upright")
    assert run(capsys, *fewshot, f"folder:{photos}/turned", "--upright", *cache) == expected
    assert run(capsys, *fewshot, f"folder:{photos}/turned", *cache) != expected
    assert run(capsys, *fewshot, f"folder:{photos}/turned", "--upright", *cache) == expected
    # As the run of the model did.
    (photos / "run.json").write_text('{"recipe": {"upright": true}}')
    assert run(capsys, *fewshot, f"folder:{photos}/turned") == expected


@pytest.mark.slow
def test_a_run_turns_photographs_and_is_evaluated_so(photos, capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "keras_vit.data.images.geometry.turn_upright",
        lambda image, orientation: loaded.append(orientation) or image,
    )
    small_classifier("token").save(photos / "start.keras")
    main([*train_arguments(photos / "start.keras", photos / "turned", photos / "run"), "--upright"])
    assert json.loads((photos / "run" / "run.json").read_text())["recipe"]["upright"]
    # Training, validation and the picture of mistakes each make one graph or more.
    before = len(loaded)
    assert before >= 3
    run(capsys, "evaluate", photos / "run")
    assert len(loaded) > before
