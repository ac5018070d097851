"""A mistyped command ends with a status other than 0, without a traceback, and writes nothing."""

import shlex
import subprocess
import sys

import pytest

from keras_vit.cli import main

GIVEN = "--model ViT_Ti16 --data digits --workdir run"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("zzz", "zzz"),
        ("trian auto", "trian"),
        ("predict", "MODEL"),
        ("predict --model m a.jpg", "predict --help"),
        ("predict m a.jpg --topp 3", "--topp"),
        ("predict m a.jpg --top x", "--top"),
        ("benchmark --image-sizes 32 ViT_Ti16", "--image-sizes"),
        ("inspect m", "--out"),
        ("train", "--workdir"),
        ("train finetune ViT_Ti16", "--workdir"),
        ("train finetune --model m --data d", "--workdir"),
        (f"train {GIVEN}", "finetune"),
        (f"train finetune {GIVEN} --lr 0.1", "--lr"),
        (f"train auto {GIVEN} --learning-rate 0.1", "--learning-rate"),
        ("study positions --workdir w", "finetune"),
        ("study paper --table x", "--table"),
        ("fewshot m --data digits --shots five", "--shots"),
        ("convert a.npz b --format timm", "--format"),
        ("export a.keras b --format tflite", "--format"),
        ("vtab m", "--workdir"),
    ],
)
def test_a_mistyped_command(arguments, named, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_info:
        main(arguments.split())
    assert exit_info.value.code == 2
    printed = capsys.readouterr()
    assert named in printed.err and not printed.out
    assert "Traceback" not in printed.err
    assert not list(tmp_path.iterdir())


def test_a_closed_standard_error_does_not_matter():
    command = [sys.executable, "-m", "keras_vit", "models", "ViT_Ti16"]
    shell = " ".join(map(shlex.quote, command)) + " 2>&-"
    found = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert "ViT_Ti16" in found.stdout
