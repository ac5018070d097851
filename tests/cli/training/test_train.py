"""`keras-vit train`."""

import json
import re

import keras
import pytest

from keras_vit.cli import parse
from keras_vit.models import vision_transformer
from tests.fixtures.commands import error_of, run, train_arguments
from tests.fixtures.images import encode, random_image
from tests.fixtures.tiny import TINY

EVERY = "--fewshot-every 4 --fewshot-data digits"


@pytest.mark.large
def test_a_hybrid_learns_the_digits_and_is_served(tmp_path, capsys):
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
def test_masked_patches_are_drawn_and_a_run_is_resumed(start, tmp_path, capsys):
    options = "--data digits --epochs 1 --warmup-steps 2 --image-size 16 --classes 3 5"
    command = ["train", "digits_masked_patches", "--model", start, "--workdir", tmp_path / "run"]
    out = run(capsys, *command, *options.split())
    assert (tmp_path / "run" / "masked_patches.png").stat().st_size > 5_000
    again = run(capsys, *command, *options.split(), "--resume")
    assert "Epoch" not in again
    assert re.search(r"Best validation accuracy.*", again)[0] in out
    other = error_of(capsys, *command, *options.split(), "--resume", "--seed", "1")
    assert "Received: recipe.seed=1 instead of 0" in other


@pytest.mark.large
def test_a_sweep_trains_on_everything_at_last(start, photos, tmp_path, capsys):
    more = ["--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    out = run(capsys, *train_arguments(start, photos, tmp_path / "run", *more))
    chosen = re.search(r"learning rate (\S+): validation accuracy \S+  <- chosen", out)[1]
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["split"], facts["recipe"]["learning_rate"]) == ("train+validation", float(chosen))
    assert {"0.1", "1e-06"} < {path.name for path in (tmp_path / "run-sweep").iterdir()}
    assert "accuracy:" in run(capsys, "evaluate", tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--warmup-steps 30", "`warmup_steps` and `boundaries` must be smaller"),
        ("--dtype mixed_bfloat16", "`dtype` cannot be given for a .keras file"),
        ("--classes bird", "`classes` must be a list of names among cat, dog"),
        (f"{EVERY} --fewshot-classes ten", "`classes` must be a list of names among 0, 1"),
        ("--fewshot-every 4", "must be given together"),
        (f"{EVERY} --fewshot-data imagenet2012_real", "`split` of imagenet2012_real must be"),
    ],
)
def test_what_cannot_be_trained_makes_no_run(more, message, start, photos, tmp_path, capsys):
    arguments = train_arguments(start, photos, tmp_path / "run", *more.split())
    assert message in error_of(capsys, *arguments)
    assert not (tmp_path / "run").exists()


def test_the_length_of_a_recipe_in_steps_may_be_given_in_epochs():
    command = "train finetune --model ViT_B16 --data digits --workdir run --epochs 3"
    recipe = parse(command.split()).recipe
    assert (recipe.epochs, recipe.steps) == (3, None)


@pytest.mark.slow
def test_an_existing_run_is_kept(finished_run, start, photos, capsys):
    before = (finished_run / "best.keras").read_bytes()
    message = error_of(capsys, *train_arguments(start, photos, finished_run))
    assert "`workdir` must be a new or empty directory" in message
    assert (finished_run / "best.keras").read_bytes() == before
