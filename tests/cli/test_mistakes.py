"""Mistakes on the command line are one line, which says what to do."""

import shlex
import subprocess
import sys

import pytest

from keras_vit.cli.mistakes import install_hint
from tests.fixtures.commands import mistake_of

TRAIN = "keras-vit train RECIPE --model MODEL --data DATA --workdir WORKDIR [options]"
PREDICT = "keras-vit predict MODEL IMAGE [IMAGE ...] [options]"
GIVEN = "--model ViT_Ti16 --data digits --workdir run"


@pytest.mark.parametrize(
    ("arguments", "what", "usage"),
    [
        ("predict", "`MODEL` is missing", PREDICT),
        ("predict --model m a.jpg", "`--model` is not an option: give MODEL without it", PREDICT),
        ("predict m a.jpg --top x", "`--top` must be an integer. Received: 'x'", PREDICT),
        (
            "benchmark --image-sizes 32 ViT_Ti16",
            "`--image-sizes` must be integers. Received: '32', 'ViT_Ti16'",
            "keras-vit benchmark MODEL [MODEL ...] [options]",
        ),
        ("inspect m", "`--out` is missing", "keras-vit inspect MODEL --out OUT [options]"),
        ("train", "`RECIPE`, `--model`, `--data` and `--workdir` are missing", TRAIN),
        (
            "train finetune ViT_Ti16",
            "Unrecognized options: ViT_Ti16; `--model`, `--data` and `--workdir` are missing",
            TRAIN,
        ),
        ("train finetune --model m --data d", "error: `--workdir` is missing", TRAIN),
        (
            f"train {GIVEN}",
            "a recipe is missing: `auto` chooses settings for your images; others are `pretrain`, "
            "`finetune`",
            TRAIN,
        ),
        (
            f"train {GIVEN} --strategy auto --image-size 32 --bogus",
            "a recipe is missing: `auto` chooses settings for your images",
            TRAIN,
        ),
        (
            f"train {GIVEN} --image-size 32 --bogus",
            "lists all; Unrecognized or misplaced options: --image-size 32 --bogus; ",
            TRAIN,
        ),
        (
            "study positions --workdir w",
            "a recipe is missing: `pretrain`, `finetune`",
            "keras-vit study STUDY RECIPE --workdir WORKDIR [options]",
        ),
        (
            "fewshot m --data digits --shots five",
            "`--shots` must be integers, or `all`. Received: 'five'",
            "keras-vit fewshot MODEL",
        ),
        ("study", "`STUDY`, `RECIPE` and `--workdir` are missing", "keras-vit study STUDY"),
        ("study paper --table x", "`--table` must be an integer", "keras-vit study paper"),
    ],
)
def test_an_error_ends_with_the_usage(arguments, what, usage, capsys):
    line = mistake_of(capsys, *arguments.split())
    assert what in line
    assert f"; see --help. Usage: {usage}" in line


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("trian", "train"),
        ("trian auto", "train"),
        (f"train finetune {GIVEN} --lr 0.1", "--learning-rate"),
        pytest.param(f"train finetune {GIVEN} --total-steps 9", "--steps", marks=pytest.mark.slow),
        pytest.param(f"train finetune {GIVEN} --stps 3", "--steps", marks=pytest.mark.slow),
        pytest.param("vtab m --workdir w --lr 0.1", "--learning-rate", marks=pytest.mark.slow),
        pytest.param("convert a.npz b --format timm", "--to", marks=pytest.mark.slow),
        ("export a.keras b --to onnx", "--format"),
    ],
)
def test_an_error_names_what_was_meant(arguments, meant, capsys):
    assert f"; did you mean {meant}?" in mistake_of(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("zzz", "must be the name of a command; `keras-vit --help` lists them. Received: 'zzz'"),
        ("predict cat.jpg START", "must be a model or an export, and images come after it"),
        ("export START exported --format tflite", " (did you mean litert?)"),
        ("predict cat.jpg", "after the model, the first argument. Received: the model 'cat.jpg'"),
        (f"train auto {GIVEN} --steps 9", "`auto` chooses these, and recipes such as `finetune`"),
    ],
)
def test_an_error_says_what_to_do(arguments, message, start, capsys):
    words = [str(start) if word == "START" else word for word in arguments.split()]
    assert message in mistake_of(capsys, *words)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            ": pip install torch, or set",
        ),
        (ImportError("cannot import name 'x' from 'tensorflow'", name="tensorflow"), ""),
        (ModuleNotFoundError("No module named 'x'", name="x"), ""),
        (
            ValueError("Unable to import backend : tensorflo"),
            "; KERAS_BACKEND must be one of tensor",
        ),
        (ValueError("other"), ""),
    ],
)
def test_errors_of_backends_have_a_hint(error, hint):
    found = install_hint(error)
    assert found.startswith(hint) and bool(found) == bool(hint)


def test_a_closed_standard_error_does_not_matter():
    command = [sys.executable, "-m", "keras_vit", "models", "ViT_Ti16"]
    shell = " ".join(map(shlex.quote, command)) + " 2>&-"
    found = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert "ViT_Ti16" in found.stdout
