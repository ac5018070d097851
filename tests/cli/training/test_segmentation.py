"""From a folder of masks to pictures of predictions, by the commands."""

import shutil

import pytest

from keras_vit.cli import main
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
    root = tmp_path_factory.mktemp("masks")
    data = f"masks:{write_masks(root / 'data')}"
    command = ["train", "segment", "--model", VARIANT, "--data", data, "--workdir", root / "run"]
    main([str(argument) for argument in [*command, *SMALL.split()]])
    return root


def test_a_segmenter_is_evaluated_at_the_size_of_the_masks(trained, capsys):
    out = run(capsys, "evaluate", trained / "run", "--per-class")
    found = dict(line.split(": ") for line in out.splitlines())
    assert {f"iou of {name}" for name in ("background", "red", "blue")} < set(found)
    source = find_source(f"masks:{trained / 'data'}", "test")
    expected = evaluate_segmentation(load_model(trained / "run" / "best.keras"), source)
    assert found["mean_iou"] == f"{expected.summary()['mean_iou']:.4f}"


def test_a_segmenter_is_evaluated_at_another_size(trained, capsys):
    out = run(capsys, "evaluate", trained / "run", "--image-size", 32)
    larger = resize(load_model(trained / "run" / "best.keras"), 32)
    expected = evaluate_segmentation(larger, find_source(f"masks:{trained / 'data'}", "test"))
    assert f"mean_iou: {expected.summary()['mean_iou']:.4f}" in out.splitlines()


def test_masks_are_drawn_of_all_images_that_can_be_decoded(trained, tmp_path, capsys):
    folder = tmp_path / "photos"
    shutil.copytree(trained / "data" / "test" / "images", folder)
    (folder / "0.png").write_bytes(b"no picture")
    with pytest.raises(SystemExit, match="1"):
        run(capsys, "predict", trained / "run", folder, "--masks", tmp_path / "seen")
    assert "0.png" in capsys.readouterr().err
    written = sorted(path.name for path in (tmp_path / "seen").iterdir())
    assert written == [f"{number}.png.png" for number in range(1, 6)]


def test_the_masks_of_a_dataset_are_drawn(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ("data", f"masks:{trained / 'data'}", "--image-size", 24, "--batch-size", 6)
    run(capsys, *command, "--picture", "data.png")
    assert (tmp_path / "data.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train finetune DATA --image-size 24", "These images need"),
        ("train segment --data digits", "needs a dataset with masks"),
        ("predict RUN photos --masks seen --output files", "exclude each other"),
        ("predict RUN digits --masks seen", "`masks` needs image files"),
        ("evaluate RUN --confusion confusion.csv", "Received: confusion for 'masks:"),
    ],
)
def test_what_is_for_other_images_is_refused(command, message, trained, tmp_path, capsys):
    data = ["--data", f"masks:{trained / 'data'}"]
    known = {"RUN": [trained / "run"], "DATA": data}
    words = [given for word in command.split() for given in known.get(word, [word])]
    if words[0] == "train":
        words += ["--model", VARIANT, "--workdir", tmp_path / "run"]
    assert message in error_of(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_masks_stay_in_their_folder(trained, tmp_path, capsys, monkeypatch):
    """Two files share a name, and the path of one leads out of the folder."""
    (tmp_path / "here" / "a").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    files = "a/x.png", "../b/x.png"
    monkeypatch.chdir(tmp_path / "here")
    for file in files:
        shutil.copy(trained / "data" / "test" / "images" / "0.png", file)
    run(capsys, "predict", trained / "run", *files, "--masks", "seen")
    written = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png.png"))
    assert written == ["here/seen/b/x.png.png", "here/seen/here/a/x.png.png"]
