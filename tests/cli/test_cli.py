"""The command line, in this process."""

import json
import re

import keras
import numpy as np
import pytest

from keras_vit.cli import main
from keras_vit.cli.models import COLUMNS, table_rows
from keras_vit.cli.tables import markdown_table
from keras_vit.models import VARIANTS, vision_transformer
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.tiny import TINY


def run(capsys, *arguments):
    """What a command prints."""
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out


def error_of(capsys, *arguments):
    """The one line that a command ends with."""
    with pytest.raises(SystemExit) as exit_info:
        main([str(argument) for argument in arguments])
    assert exit_info.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("keras-vit: error: ")
    assert "Received: " in lines[0]
    return lines[0]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("photos"), ("cat", "dog"), count=10)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A tiny model to fine-tune."""
    path = tmp_path_factory.mktemp("models") / "start.keras"
    keras.utils.set_random_seed(0)
    vision_transformer(**TINY).save(path)
    return path


@pytest.fixture(scope="module")
def finished_run(photos, start, tmp_path_factory):
    """A run that fine-tuned the tiny model on the photos."""
    workdir = tmp_path_factory.mktemp("runs") / "photos"
    main(train_arguments(start, photos, workdir))
    return workdir


def train_arguments(model, photos, workdir, *more):
    small = "--image-size 16 --batch-size 7 --steps 10 --warmup-steps 2 --learning-rate 0.1"
    data = f"folder:{photos}"
    start = ["train", "finetune", "--model", model, "--data", data, "--workdir", workdir]
    return [str(argument) for argument in [*start, *small.split(), "--min-crop-area", 0.5, *more]]


def test_models(capsys):
    lines = run(capsys, "models").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [variant.name for variant in VARIANTS]
    assert "86.6 M" in lines[5]
    assert "35.1" in lines[5]
    assert run(capsys, "models", "--markdown").strip() == markdown_table(
        COLUMNS, table_rows(224, 1000)
    )
    assert run(capsys, "models", "--image-size", 384).splitlines()[10].split()[-1] == "-"
    lines = run(capsys, "models", "--flops").splitlines()
    assert len(lines) == 1 + len(VARIANTS)
    # Three forward passes; a float32 has 4 bytes.
    assert lines[5].split() == ["ViT_B16", "86.6", "M", "35.1", "105.4", "118.9", "17.9"]
    assert lines[-1].split()[-2:] == ["698.3", "-"]
    lines = run(capsys, "models", "--flops", "--image-size", 300).splitlines()
    assert lines[1].split() == ["ViT_Ti16", *"-----"]


def test_train_on_a_folder(finished_run):
    facts = json.loads((finished_run / "run.json").read_text())
    assert facts["class_names"] == ["cat", "dog"]
    assert facts["recipe"]["steps"] == 10
    assert facts["recipe"]["clip_norm"] == 1.0
    assert (finished_run / "best.keras").is_file()


def test_evaluate(finished_run, photos, capsys):
    of_the_run = run(capsys, "evaluate", finished_run)
    assert "images: 4\n" in of_the_run
    # Two colours are learnt in 10 steps.
    assert "accuracy: 1.0000" in of_the_run
    of_a_file = run(
        capsys,
        "evaluate",
        finished_run / "last.keras",
        "--data",
        f"folder:{photos}",
        "--split",
        "train",
    )
    assert "images: 14\n" in of_a_file


def test_export_and_predict(finished_run, photos, tmp_path, capsys):
    files = [photos / "cat" / "0.jpg", photos / "dog" / "1.jpg"]
    exported = run(capsys, "export", finished_run, tmp_path / "serving")
    assert f"Exported to {tmp_path / 'serving' / '1'}" in exported
    for model in (finished_run, tmp_path / "serving", tmp_path / "serving" / "1"):
        lines = run(capsys, "predict", model, *files, "--top", 1).splitlines()
        assert [line.split()[:2] for line in lines] == [
            [str(files[0]), "cat"],
            [str(files[1]), "dog"],
        ]


@pytest.mark.large
def test_a_hybrid_learns_the_digits(tmp_path, capsys):
    """Train, evaluate, export and predict, as with any model."""
    keras.utils.set_random_seed(0)
    hybrid = {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32}
    options = {"embedding_dim": 32, "num_classes": 3, "image_size": 32}
    vision_transformer(**{**TINY, **hybrid, **options}).save(tmp_path / "start.keras")
    arguments = "--data digits --epochs 3 --warmup-steps 5 --image-size 32 --classes 0 1 2"
    command = ["train", "digits_pretrain", "--model", tmp_path / "start.keras"]
    run(capsys, *command, "--workdir", tmp_path / "run", *arguments.split())
    printed = run(capsys, "evaluate", tmp_path / "run")
    assert float(re.search(r"accuracy: (\S+)", printed)[1]) > 0.8
    run(capsys, "export", tmp_path / "run", tmp_path / "serving")
    image = tmp_path / "digit.png"
    image.write_bytes(encode(random_image(8, 8), "PNG"))
    from_run = run(capsys, "predict", tmp_path / "run", image, "--top", 1)
    assert run(capsys, "predict", tmp_path / "serving", image, "--top", 1) == from_run


@pytest.mark.examples
def test_train_on_some_digits(start, tmp_path, capsys):
    out = run(
        capsys,
        "train",
        "digits_finetune",
        "--model",
        start,
        "--data",
        "digits",
        "--workdir",
        tmp_path / "run",
        "--steps",
        12,
        "--image-size",
        8,
        "--classes",
        "3",
        "5",
    )
    assert "Best validation accuracy" in out
    assert "images: 73\n" in run(capsys, "evaluate", tmp_path / "run")


@pytest.mark.examples
def test_masked_patches_are_drawn_and_a_run_is_resumed(start, tmp_path, capsys):
    options = "--data digits --epochs 1 --warmup-steps 2 --image-size 16 --classes 3 5"
    command = ["train", "digits_masked_patches", "--model", start, "--workdir", tmp_path / "run"]
    out = run(capsys, *command, *options.split())
    assert "What it predicts of masked patches" in out
    assert (tmp_path / "run" / "masked_patches.png").stat().st_size > 5_000
    again = run(capsys, *command, *options.split(), "--resume")
    assert "Epoch" not in again
    assert re.search(r"Best validation accuracy.*", again)[0] in out
    other = error_of(capsys, *command, *options.split(), "--resume", "--seed", "1")
    assert "must have the settings it was begun with. Received: seed=1 instead of 0" in other


@pytest.mark.large
def test_a_sweep_trains_on_everything_at_last(start, photos, tmp_path, capsys):
    more = ["--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    out = run(capsys, *train_arguments(start, photos, tmp_path / "run", *more))
    chosen = re.search(r"learning rate (\S+): validation accuracy \S+  <- chosen", out)[1]
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["split"], facts["recipe"]["learning_rate"]) == ("train+validation", float(chosen))
    assert {path.name for path in (tmp_path / "run-sweep").iterdir()} == {"0.1", "1e-06"}
    assert "accuracy:" in run(capsys, "evaluate", tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data", "folder:missing"], "`folder:PATH` must name a folder"),
        (["--data", "cifar"], "`name` must be `digits`"),
        (["--model", "ViT_B17"], "`variant` must be the name of an architecture"),
        (["--model", "missing.keras"], "`model` must be an existing file"),
        (["--image-size", "18"], "`image_size` must be a multiple of (4, 4)"),
        (["--warmup-steps", "30"], "`warmup_steps` must be smaller"),
        (["--dtype", "mixed_bfloat16"], "`dtype` is for a model that is not a .keras file"),
        (["--classes", "bird"], "`classes` must be among cat, dog"),
        (["--strategy", "multi_worker_mirrored"], "use the JAX backend"),
        (["--frozen-blocks", "3"], "`num_blocks` must be an integer from 0 to 2"),
        (["--sweep-lr", "--learning-rates"], "A sweep needs `learning_rates` to choose from"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_train_with_a_wrong_argument(more, message, start, photos, tmp_path, capsys):
    arguments = train_arguments(start, photos, tmp_path / "run")
    if more[0] in arguments:
        arguments[arguments.index(more[0]) + 1] = more[1]
    else:
        arguments += more
    assert message in error_of(capsys, *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--batch-size", "0", "`batch_size` must be positive"),
        ("--min-crop-area", "2", "`min_crop_area` must be greater than 0"),
        ("--accumulation-steps", "3", "`accumulation_steps` must divide `batch_size`"),
        ("--epochs", "3", "Exactly one of `epochs` and `steps` must be given"),
        ("--steps", "many", "Error parsing --steps: no type matching {None}|INT"),
        ("--dtype", "float8", "invalid choice 'float8' for argument '--dtype'"),
        ("--stps", "3", "Unrecognized options: --stps, 3; see --help"),
    ],
)
def test_flags_are_checked_while_they_are_parsed(flag, value, message, start, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([*train_arguments(start, tmp_path, tmp_path / "run"), flag, value])
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-vit: error: ")
    assert message in line


def test_an_unknown_recipe(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["train", "finetun", "--model", "ViT_B16", "--data", "digits", "--workdir", "run"])
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "keras-vit: error: Unrecognized options: finetun; see --help"


def test_an_existing_run_is_kept(finished_run, start, photos, capsys):
    before = (finished_run / "best.keras").read_bytes()
    message = error_of(capsys, *train_arguments(start, photos, finished_run))
    assert "`workdir` must be a new or empty directory" in message
    assert (finished_run / "best.keras").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "missing.keras"], "`model` must be an existing file"),
        (["evaluate", "missing"], "`path` must be an existing file or the name of a checkpoint"),
        (["evaluate", "START"], "`--data` must be given"),
        (["evaluate", "START", "--data", "digits"], "must have the model's 3 classes"),
        (["evaluate", "PAGE", "--data", "digits"], "`model` must be a complete Keras model"),
        (["predict", "START", "PAGE", "--top", "0"], "`--top` must be positive"),
        (["predict", "START"], "`images` must name at least one file"),
        (["predict", "missing", "PAGE"], "`path` must be an existing file or the name"),
        (["predict", ".", "PAGE"], "`path` must be a directory with model.safetensors"),
        (["export", "missing.keras", "serving"], "`model` must be an existing file"),
        (["export", "START", "serving", "--verify"], "There must be an image file or a folder"),
        (["export", "START", "serving", "--verify", "PAGE"], "`images` must be complete JPEG, PNG"),
        (["export", "START", "serving", "--version", "0"], "`version` must be a positive"),
        (
            ["export", "START", "serving", "--signatures", "features", "--verify", "PAGE"],
            "`--verify` compares logits",
        ),
        (["models", "--image-size", "0"], "`image_size` must be positive"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_argument(arguments, message, start, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.keras"
    page.write_text("<html>not found</html>")
    known = {"START": start, "PAGE": page}
    assert message in error_of(capsys, *[known.get(word, word) for word in arguments])
    assert [path.name for path in tmp_path.iterdir()] == ["page.keras"]


def test_predict_names_what_is_no_image_and_goes_on(start, photos, tmp_path, capsys):
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    good = next(photos.rglob("*.jpg"))
    images = [tmp_path / "missing.jpg", tmp_path / "page.jpg", good]
    with pytest.raises(SystemExit) as exit_info:
        main(["predict", str(start), *map(str, images)])
    assert exit_info.value.code == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(str(good)) and len(printed.out.splitlines()) == 1
    missing, page, untrained = printed.err.splitlines()
    assert "`images` must be files that can be read" in missing
    assert "`images` must be complete JPEG, PNG" in page
    assert "the model's head is zero" in untrained


def test_evaluate_on_other_classes(finished_run, capsys):
    message = error_of(capsys, "evaluate", finished_run, "--data", "digits", "--classes", "1", "2")
    assert "must have the model's classes ['cat', 'dog']" in message


def test_a_run_is_evaluated_from_any_directory(finished_run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "images: 4\n" in run(capsys, "evaluate", finished_run)


def test_a_run_is_no_place_for_exports(finished_run, capsys):
    message = error_of(capsys, "export", finished_run, finished_run)
    assert "`directory` must be one for exports" in message


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(ValueError, match="`image_size` must be positive"):
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
    def load(path, image_size):
        raise error

    monkeypatch.setattr("keras_vit.cli.predict.load_predictor", load)
    with pytest.raises(expected):
        main(["predict", "m.keras", "image.png", "--image-size", "999999"])
    lines = [f"keras-vit: error: out of memory: {error}"] if expected is SystemExit else []
    assert capsys.readouterr().err.splitlines() == lines


def test_a_mistyped_command(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["trian"])
    assert exit_info.value.code == 2
    assert "trian" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["quickstart", "models", "train", "evaluate", "predict", "export"]
)
def test_help_shows_types_defaults_and_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    assert f"Example: keras-vit {command}" in " ".join(text.split())
    assert "(default: " in text


def test_help_of_a_recipe_shows_its_settings(capsys):
    with pytest.raises(SystemExit):
        main(["train", "finetune", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--learning-rate FLOAT" in text
    assert "(default: 0.03)" in text


def test_quickstart_says_at_once_what_is_not_installed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = error_of(capsys, "quickstart", "--workdir", tmp_path / "quickstart")
    assert "no sklearn and no matplotlib" in message
    assert not (tmp_path / "quickstart").exists()


@pytest.mark.large
def test_quickstart(tmp_path, capsys, monkeypatch):
    """The whole job, its training shortened; `make demo` runs it in full."""
    from keras_vit.cli import quickstart
    from keras_vit.training import recipes

    monkeypatch.setattr(quickstart, "DEPTH", 1)
    for name in ("DIGITS_PRETRAIN", "DIGITS_FINETUNE"):
        shortened = getattr(recipes, name).smoke()
        monkeypatch.setattr(recipes, name, shortened)
    out = run(capsys, "quickstart", "--workdir", tmp_path / "quickstart")
    assert "test accuracy fine-tuned:" in out
    assert "test accuracy from scratch:" in out
    assert "Try next:" in out
    picture = tmp_path / "quickstart" / "predictions.png"
    accuracies = json.loads((tmp_path / "quickstart" / "accuracies.json").read_text())
    assert set(accuracies) == {"fine-tuned", "from scratch"}
    pixels = np.asarray(keras.utils.img_to_array(keras.utils.load_img(picture)))
    assert pixels.std() > 10
    assert (tmp_path / "quickstart" / "serving" / "1" / "saved_model.pb").is_file()
    assert len(list((tmp_path / "quickstart" / "images").glob("*.png"))) == 4
