"""`keras-vit` as a user runs it, and the shorter commands."""

import csv
import logging

import pytest

import keras_vit
from keras_vit.__main__ import run as run_process
from keras_vit.cli import COMMANDS, main, show_log
from keras_vit.cli.command import markdown_table
from keras_vit.cli.models import COLUMNS, table_row
from keras_vit.cli.train import Auto
from keras_vit.models import VARIANTS
from keras_vit.training.recipe import RECIPES, Recipe
from keras_vit.version import __version__
from tests.fixtures.commands import CASE, error_of, run
from tests.fixtures.reference import case_path


def test_models(capsys):
    lines = run(capsys, "models").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [variant.name for variant in VARIANTS]
    assert "86.6 M" in lines[5]
    assert "35.1" in lines[5]
    assert run(capsys, "models", "--markdown").strip() == markdown_table(
        COLUMNS, map(table_row, VARIANTS)
    )
    assert run(capsys, "models", "--image-size", 384).splitlines()[10].split()[-1] == "-"
    lines = run(capsys, "models", "--flops").splitlines()
    assert len(lines) == 1 + len(VARIANTS)
    # Three forward passes; a float32 has 4 bytes.
    assert lines[5].split() == ["ViT_B16", "86.6", "M", "35.1", "105.4", "112.0", "17.3"]
    assert lines[-1].split()[-2:] == ["698.3", "-"]
    lines = run(capsys, "models", "--flops", "--image-size", 300).splitlines()
    assert lines[1].split() == ["ViT_Ti16", *"-----"]
    lines = run(capsys, "models", "bit", "50").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["BiT_R50x1", "BiT_R50x2", "BiT_R50x3"]


def test_checkpoints(capsys):
    lines = run(capsys, "checkpoints", "b16", "augreg").splitlines()
    assert lines[0].split() == ["name", "size", "classes", "top-1"]
    assert [line.split()[0] for line in lines[1:]] == [
        row.name for row in keras_vit.list_checkpoints("b16 augreg")
    ]
    everything = run(capsys, "checkpoints", "--urls").splitlines()
    assert len(everything) == 1 + len(keras_vit.list_checkpoints())
    assert everything[1].split()[-1].startswith("gs://")
    zero = run(capsys, "checkpoints", "ViT_L32/imagenet21k", "--markdown").splitlines()
    assert zero[2] == "| ViT_L32/imagenet21k | 224 | 21843 (zero) | - |"


@pytest.mark.slow
def test_evaluate(finished_run, photos, capsys, tmp_path, monkeypatch):
    # A run is evaluated from any directory.
    monkeypatch.chdir(tmp_path)
    of_the_run = run(capsys, "evaluate", finished_run)
    assert "images: 4\n" in of_the_run
    # Two colours are learnt in 10 steps.
    assert "accuracy: 1.0000" in of_the_run
    data = ("--data", f"folder:{photos}", "--split", "train")
    of_a_file = run(capsys, "evaluate", finished_run / "last.keras", *data)
    assert "images: 14\n" in of_a_file


@pytest.mark.slow
def test_export_and_predict(finished_run, photos, tmp_path, capsys):
    files = [photos / "cat" / "0.jpg", photos / "dog" / "1.jpg"]
    exported = run(capsys, "export", finished_run, tmp_path / "serving")
    assert f"Exported to {tmp_path / 'serving' / '1'}" in exported
    for model in (finished_run, tmp_path / "serving", tmp_path / "serving" / "1"):
        lines = run(capsys, "predict", model, *files, "--top", 1).splitlines()
        found = [line.split()[:2] for line in lines]
        assert found == [[str(file), file.parent.name] for file in files]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate missing.keras", "`model` must be an existing file"),
        ("evaluate missing", "`path` must be an existing file or directory, or the name of"),
        ("evaluate START", "`data` must be given"),
        ("evaluate START --data folders:x", "`name` must be `digits`"),
        ("evaluate START --data digits", "must have the model's 3 classes"),
        ("evaluate PAGE --data digits", "`model` must be a complete Keras model"),
        # The files are checked before the model is read.
        (
            "evaluate missing.keras --confusion missing/x.csv",
            "must be a new .csv file in a folder that exists",
        ),
        (
            "evaluate missing.keras --confusion x.txt",
            "must be a new .csv file in a folder that exists",
        ),
        (
            "evaluate missing.keras --confusion-figure x.csv",
            "must be a new .png file in a folder that exists",
        ),
        ("fewshot missing.keras --data digits", "`model` must be an existing file"),
        ("predict START", "`images` must name an image"),
        ("predict missing PAGE", "`path` must be an existing file or directory, or the name"),
        ("predict . PAGE", "`path` must be a directory with model.safetensors"),
        ("export missing.keras serving", "`model` must be an existing file"),
        ("export START serving --verify", "There must be an image"),
        ("export START serving --verify PAGE", "`images` must be complete JPEG, PNG"),
        ("export START serving --version 0", "`version` must be a positive"),
        ("convert FILE target", "`--to` must be given"),
        ("convert FILE target.h5 --to keras", "`keras` writes .keras files"),
        ("convert FILE target.npz --to timm", "`path` must be a directory or a"),
        ("convert FILE x.keras --image-size 33", "`image_size` must be a multiple"),
        ("convert missing.npz x.keras", "`path` must be an existing file"),
        ("inspect-checkpoint missing.npz", "`path` must be an existing file"),
        (
            "inspect-checkpoint FILE --against ViT_B17",
            "the name of a checkpoint in `list_checkpoints()`",
        ),
    ],
)
def test_wrong_argument(arguments, message, start, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.keras"
    page.write_text("<html>not found</html>")
    known = {"START": start, "PAGE": page, "FILE": case_path(CASE)}
    words = [known.get(word, word) for word in arguments.split()]
    assert message in error_of(capsys, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["page.keras"]


@pytest.mark.slow
def test_wrong_arguments_for_a_run(finished_run, capsys):
    error = error_of(capsys, *f"evaluate {finished_run} --data digits --classes 1 2".split())
    assert "must have the model's 2 classes, ['cat', 'dog']" in error
    error = error_of(capsys, "export", finished_run, finished_run)
    assert "`directory` must be one for numbered versions" in error


def test_predict_names_what_is_no_image_and_goes_on(start, photos, tmp_path, capsys):
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    good = next(photos.rglob("*.jpg"))
    images = [tmp_path / "missing.jpg", tmp_path / "page.jpg", good]
    table = tmp_path / "found.csv"
    with pytest.raises(SystemExit) as exit_info:
        main(["predict", str(start), *map(str, images), "--top", "2", "--csv", str(table)])
    assert exit_info.value.code == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(str(good)) and len(printed.out.splitlines()) == 2
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # The head is zero.
    share = f"{1 / 3:.5f}"
    found = [(row["image"], row["class"], row["probability"][: len(share)]) for row in rows]
    bad = [(str(image), "", "") for image in images[:2]]
    assert found == [*bad, (str(good), "0", share), (str(good), "1", share)]
    errors = ["no such file", "HTML or XML, which is not decoded", "", ""]
    assert [row["error"] for row in rows] == errors
    assert "must be a new .csv file" in error_of(capsys, "predict", start, good, "--csv", table)
    untrained, names, missing, page = printed.err.splitlines()
    assert "the model's head is zero" in untrained + names
    assert "the model has no class names" in untrained + names
    assert missing == f"keras-vit: error: {images[0]}: no such file"
    assert page == f"keras-vit: error: {images[1]}: HTML or XML, which is not decoded"


def test_a_skipped_file_is_named_once(capsys):
    show_log()
    for name in ("a.jpg", "a.jpg", "b.jpg"):
        logging.getLogger("keras_vit").info("skipped %s: %s", name, "no image")
        logging.getLogger("keras_vit").info("another line")
    err = capsys.readouterr().err
    assert err.count("keras-vit: skipped ") == 2 and err.count("another line") == 3


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(ValueError, match="`image_size` must be a positive integer"):
        main(["models", "--image-size", "0", "--debug"])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError("Unable to allocate 9 TiB"), SystemExit),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 TiB"), SystemExit),
        (RuntimeError("A mistake of ours"), RuntimeError),
    ],
    ids=["numpy", "a backend", "another error"],
)
def test_too_little_memory_is_a_line(error, expected, capsys, monkeypatch):
    def load(*args):
        raise error

    monkeypatch.setattr("keras_vit.serving.predictor.load_runner", load)
    with pytest.raises(expected):
        main(["predict", "m.keras", "image.png", "--image-size", "999999"])
    lines = [f"keras-vit: error: out of memory: {error}"] if expected is SystemExit else []
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    assert f"Example: keras-vit {command.replace('study-', 'study ')}" in " ".join(text.split())
    assert "(default: " in text


def test_the_checkpoints_of_examples_exist():
    texts = (command.__doc__.partition("Args:")[0] for command in COMMANDS.values())
    examples = [text.partition("Example: ")[2] for text in texts]
    words = [word for example in examples for word in example.split()]
    variants = {variant.name for variant in VARIANTS}
    names = {word for word in words if word.partition("/")[0] in variants}
    assert len(names - variants) > 1
    assert names <= variants | {row.name for row in keras_vit.list_checkpoints()}


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert not exit_info.value.code
    assert capsys.readouterr().out == f"keras-vit {__version__}\n"


def leave(status):
    raise SystemExit(status)


@pytest.mark.parametrize("words", [(), ("stopped after a batch",)], ids=["by a key", "by a run"])
def test_a_stopped_command_is_one_line(words, capsys, monkeypatch):
    """A run that has saved its state has said that it stops."""

    def stop(self):
        raise KeyboardInterrupt(*words)

    monkeypatch.setattr("keras_vit.cli.models.Models.run", stop)
    monkeypatch.setattr("sys.argv", ["keras-vit", "models"])
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit) as exit_info:
        run_process()
    assert exit_info.value.code == 130
    assert capsys.readouterr().err == ("" if words else "keras-vit: stopped\n")


@pytest.mark.parametrize("place", ["keras_vit.cli.main", "keras_vit.cli.models.Models.run"])
def test_a_process_that_is_stopped_at_any_time_prints_one_line(place, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stop)
    monkeypatch.setattr("sys.argv", ["keras-vit", "models"])
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit) as exit_info:
        run_process()
    assert exit_info.value.code == 130
    assert capsys.readouterr().err == "keras-vit: stopped\n"


def test_help_of_all_commands_fits_a_screen(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert text.count("\n") <= 50 and all(f" {name} " in text for name in COMMANDS)


def test_help_has_all_recipes_and_what_options_do(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f" {name} " in text for name in RECIPES)
    assert "share of the training images to train on." in text


def test_help_keeps_no_end_of_a_line():
    """Tyro does, if the next line does not begin with a letter."""
    for documented in (*COMMANDS.values(), Recipe, Auto):
        arguments = documented.__doc__.partition("Args:")[2].splitlines()
        lines = [line.strip() for line in arguments if line.startswith(" " * 12)]
        assert not [line for line in lines if not line[0].isalpha()], documented
