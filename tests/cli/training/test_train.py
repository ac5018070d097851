"""`keras-vit train`."""

import json
import re

import keras
import pytest

from keras_vit.cli import main, parse
from keras_vit.cli.train import describe_best
from keras_vit.models import vision_transformer
from tests.fixtures.commands import error_of, parse_error_of, run, train_arguments
from tests.fixtures.images import encode, random_image
from tests.fixtures.tiny import TINY


@pytest.mark.slow
def test_train_on_a_folder(finished_run):
    facts = json.loads((finished_run / "run.json").read_text())
    assert facts["class_names"] == ["cat", "dog"]
    assert facts["recipe"]["steps"] == 10
    assert facts["recipe"]["clip_norm"] == 1.0
    assert (finished_run / "best.keras").is_file()


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
    options = "--data digits --steps 12 --image-size 8 --classes 3 5"
    command = ["train", "digits_finetune", "--model", start, "--workdir", tmp_path / "run"]
    out = run(capsys, *command, *options.split())
    assert "Best validation accuracy" in out
    assert "images: 73\n" in run(capsys, "evaluate", tmp_path / "run")


@pytest.mark.examples
def test_masked_patches_are_drawn_and_a_run_is_resumed(start, tmp_path, capsys):
    options = "--data digits --epochs 1 --warmup-steps 2 --image-size 16 --classes 3 5"
    command = ["train", "digits_masked_patches", "--model", start, "--workdir", tmp_path / "run"]
    out = run(capsys, *command, *options.split())
    assert f"Figure: {tmp_path / 'run' / 'masked_patches.png'}" in out
    assert (tmp_path / "run" / "masked_patches.png").stat().st_size > 5_000
    again = run(capsys, *command, *options.split(), "--resume")
    assert "Epoch" not in again
    assert re.search(r"Best validation accuracy.*", again)[0] in out
    other = error_of(capsys, *command, *options.split(), "--resume", "--seed", "1")
    assert "must have the settings it was begun with. Received: recipe.seed=1 instead of 0" in other


@pytest.mark.large
def test_a_sweep_trains_on_everything_at_last(start, photos, tmp_path, capsys):
    more = ["--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    out = run(capsys, *train_arguments(start, photos, tmp_path / "run", *more))
    chosen = re.search(r"learning rate (\S+): validation accuracy \S+  <- chosen", out)[1]
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["split"], facts["recipe"]["learning_rate"]) == ("train+validation", float(chosen))
    assert {path.name for path in (tmp_path / "run-sweep").iterdir()} == {
        "0.1",
        "1e-06",
        "results.csv",
        "settings.json",
    }
    assert "accuracy:" in run(capsys, "evaluate", tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--data cifar", "must be `digits`"),
        ("--model ViT_B17", "`model` must be an existing file or directory"),
        ("--model missing.keras", "`model` must be an existing file"),
        pytest.param(
            "--image-size 18",
            "`image_size` must be a multiple of (4, 4)",
            marks=pytest.mark.slow,
        ),
        ("--warmup-steps 30", "`warmup_steps` and `boundaries` must be smaller"),
        ("--dtype mixed_bfloat16", "`dtype` is for a model that is not a .keras file"),
        ("--classes bird", "`classes` must be among cat, dog"),
        pytest.param(
            "--frozen-blocks 3",
            "`num_blocks` must be an integer from 0 to 2",
            marks=pytest.mark.slow,
        ),
        ("--sweep-lr --learning-rates", "A sweep needs `learning_rates` to choose from"),
    ],
)
def test_train_with_a_wrong_argument(more, message, start, photos, tmp_path, capsys):
    arguments = train_arguments(start, photos, tmp_path / "run")
    flag, value = more.split()
    if flag in arguments:
        arguments[arguments.index(flag) + 1] = value
    else:
        arguments += [flag, value]
    assert message in error_of(capsys, *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--batch-size", "0", "`batch_size` must be a positive number"),
        ("--min-crop-area", "2", "`min_crop_area` must be greater than 0"),
        ("--steps", "many", "--steps"),
        ("--dtype", "float8", "--dtype"),
        ("--stps", "3", "Perhaps you meant: --steps"),
    ],
)
def test_flags_are_checked_while_they_are_parsed(flag, value, message, start, tmp_path, capsys):
    arguments = train_arguments(start, tmp_path, tmp_path / "run")
    assert message in parse_error_of(capsys, *arguments, flag, value)


def test_the_length_of_a_recipe_in_steps_may_be_given_in_epochs(capsys):
    command = "train finetune --model ViT_B16 --data digits --workdir run --epochs 3"
    recipe = parse(command.split()).recipe
    assert (recipe.epochs, recipe.steps) == (3, None)
    both = parse_error_of(capsys, *command.split(), "--steps", "7")
    assert "Exactly one of `epochs` and `steps` must be given" in both


@pytest.mark.slow
def test_an_existing_run_is_kept(finished_run, start, photos, capsys):
    before = (finished_run / "best.keras").read_bytes()
    message = error_of(capsys, *train_arguments(start, photos, finished_run))
    assert "`workdir` must be a new or empty directory" in message
    assert (finished_run / "best.keras").read_bytes() == before


def test_help_of_a_recipe_shows_its_settings(capsys):
    with pytest.raises(SystemExit):
        main(["train", "finetune", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--learning-rate FLOAT" in text
    assert "(default: 0.03)" in text


def test_the_best_epoch_is_described_by_the_metric_that_selects_it():
    history = [{"val_accuracy": 0.5, "val_loss": 2.0}, {"val_accuracy": 0.4, "val_loss": 1.0}]
    assert describe_best(history) == "Best validation accuracy 50.00%"
    assert describe_best(history, "val_loss") == "Best validation loss 1.0000"
    assert describe_best([{"loss": 1.0}]) == "Trained for 1 epoch"
