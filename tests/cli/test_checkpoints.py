"""`keras-vit checkpoints`."""

import keras_vit
from tests.fixtures.commands import error_of, run


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


def test_no_such_checkpoint(capsys):
    assert "`filter` must be words of" in error_of(capsys, "checkpoints", "resnext")
