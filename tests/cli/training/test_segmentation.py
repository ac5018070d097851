"""From a folder of masks to pictures of predictions, by the commands."""

import shutil

import pytest

from keras_vit.data import find_source
from keras_vit.evaluation import evaluate_segmentation
from keras_vit.models import resize
from keras_vit.models.keras_files import load_model
from tests.fixtures.commands import error_of, run
from tests.fixtures.masks import write_masks

pytestmark = pytest.mark.slow

VARIANT = "ViT_Ti16(patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64)"
SMALL = "--image-size 24 --batch-size 6 --steps 10 --warmup-steps 2 --optimizer adamw"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from keras_vit.cli import main

    root = tmp_path_factory.mktemp("masks")
    data = f"masks:{write_masks(root / 'data')}"
    command = ["train", "segment", "--model", VARIANT, "--data", data, "--workdir", root / "run"]
    main([str(argument) for argument in [*command, *SMALL.split()]])
    return root


def test_it_is_evaluated_at_the_size_of_the_masks(trained, capsys):
    out = run(capsys, "evaluate", trained / "run", "--per-class")
    found = dict(line.split(": ") for line in out.splitlines())
    assert list(found) == [
        *("images", "accuracy", "mean_iou"),
        *(f"iou of {name}" for name in ("background", "red", "blue")),
    ]
    source = find_source(f"masks:{trained / 'data'}", "test")
    expected = evaluate_segmentation(load_model(trained / "run" / "best.keras"), source)
    assert found["mean_iou"] == f"{expected.summary()['mean_iou']:.4f}"


def test_it_is_evaluated_at_another_size(trained, capsys):
    out = run(capsys, "evaluate", trained / "run", "--image-size", 32)
    larger = resize(load_model(trained / "run" / "best.keras"), 32)
    expected = evaluate_segmentation(larger, find_source(f"masks:{trained / 'data'}", "test"))
    assert f"mean_iou: {expected.summary()['mean_iou']:.4f}" in out.splitlines()


def test_masks_are_drawn(trained, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folder = trained / "data" / "test" / "images"
    run(capsys, "predict", trained / "run", folder, "--masks", tmp_path / "seen")
    written = sorted(path.name for path in (tmp_path / "seen").iterdir())
    assert written == [f"{number}.png.png" for number in range(6)]


def test_an_image_that_cannot_be_decoded_is_reported(trained, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "photos"
    shutil.copytree(trained / "data" / "test" / "images", folder)
    (folder / "0.png").write_bytes(b"no picture")
    with pytest.raises(SystemExit, match="1"):
        run(capsys, "predict", trained / "run", folder, "--masks", tmp_path / "seen")
    printed = capsys.readouterr()
    assert "0.png" in printed.err and "Written to" in printed.out
    assert len([*(tmp_path / "seen").iterdir()]) == 5
    with pytest.raises(SystemExit, match="1"):
        run(capsys, "predict", trained / "run", folder / "0.png", "--masks", tmp_path / "none")
    assert capsys.readouterr().out == "" and not (tmp_path / "none").exists()


def test_the_masks_of_a_dataset_are_drawn(trained, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    command = ("data", f"masks:{trained / 'data'}", "--image-size", 24, "--batch-size", 6)
    assert "data.png" in run(capsys, *command, "--picture", "data.png")
    assert (tmp_path / "data.png").stat().st_size > 10_000
    assert "without masks" in error_of(capsys, *command, "--records", tmp_path / "records")


def test_a_run_with_a_decoder_is_trained_on(trained, tmp_path, capsys):
    data = ("--data", f"masks:{trained / 'data'}", "--segment-head", "mask", *SMALL.split())
    run(capsys, "train", "segment", "--model", VARIANT, "--workdir", tmp_path / "a", *data)
    run(capsys, "train", "segment", "--model", tmp_path / "a", "--workdir", tmp_path / "b", *data)
    first, second = (load_model(tmp_path / name / "last.keras") for name in "ab")
    assert [layer.name for layer in first.layers] == [layer.name for layer in second.layers]


def test_wrong_commands(trained, tmp_path, capsys):
    for flag in ("--confusion", "--compare"):
        message = error_of(capsys, "evaluate", trained / "run", flag, tmp_path / "confusion.csv")
        assert f"Received: {flag[2:]} for 'masks:" in message
    both = ("--masks", tmp_path / "seen", "--output", tmp_path / "files")
    assert "`csv`, `output` and `masks` exclude each other" in error_of(
        capsys, "predict", trained / "run", "photos", *both
    )
    assert "`masks` is for image files" in error_of(
        capsys, "predict", trained / "run", "digits", "--masks", tmp_path / "seen"
    )
    data = ("--data", "digits", "--workdir", tmp_path / "run")
    assert "needs a dataset with masks" in error_of(
        capsys, "train", "segment", "--model", VARIANT, *data, *SMALL.split()
    )
    data = ("--data", f"masks:{trained / 'data'}", "--workdir", tmp_path / "run")
    assert "These images need" in error_of(
        capsys, "train", "finetune", "--model", VARIANT, *data, "--image-size", 24
    )
    assert not (tmp_path / "run").exists()


def test_it_classifies_no_images(trained, capsys):
    photo = trained / "data" / "test" / "images" / "0.png"
    error = error_of(capsys, "predict", trained / "run", photo)
    assert "A model must be a classifier" in error


def test_masks_stay_in_their_folder(trained, tmp_path, capsys, monkeypatch):
    """Two files share a name, and the path of one leads out of the folder."""
    pytest.importorskip("matplotlib")
    (tmp_path / "here" / "a").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    files = "a/x.png", "../b/x.png"
    monkeypatch.chdir(tmp_path / "here")
    for file in files:
        shutil.copy(trained / "data" / "test" / "images" / "0.png", file)
    run(capsys, "predict", trained / "run", *files, "--masks", "seen")
    written = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png.png"))
    assert written == ["here/seen/b/x.png.png", "here/seen/here/a/x.png.png"]
