"""From a folder of masks to pictures of predictions, by the commands."""

import pytest

from keras_vit.data import find_source
from keras_vit.evaluation import evaluate_segmentation
from keras_vit.models.files import load_model
from tests.fixtures.commands import error_of, run
from tests.fixtures.masks import write_masks

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


def test_masks_are_drawn(trained, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folder = trained / "data" / "test" / "images"
    run(capsys, "predict", trained / "run", folder, "--masks", tmp_path / "seen")
    written = sorted(path.name for path in (tmp_path / "seen").iterdir())
    assert written == [f"{number}.png.png" for number in range(6)]


def test_wrong_commands(trained, tmp_path, capsys):
    assert "`--masks` needs image files" in error_of(
        capsys, "predict", trained / "run", "digits", "--masks", tmp_path / "seen"
    )
    data = ("--data", "digits", "--workdir", tmp_path / "run")
    assert "needs a dataset with masks" in error_of(
        capsys, "train", "segment", "--model", VARIANT, *data, *SMALL.split()
    )
    data = ("--data", f"masks:{trained / 'data'}", "--workdir", tmp_path / "run")
    assert "Images with masks need `--loss segmentation`" in error_of(
        capsys, "train", "finetune", "--model", VARIANT, *data, "--image-size", 24
    )
    assert not (tmp_path / "run").exists()


def test_it_classifies_no_images(trained, capsys):
    photo = trained / "data" / "test" / "images" / "0.png"
    assert "a segmenter, whose masks" in error_of(capsys, "predict", trained / "run", photo)
