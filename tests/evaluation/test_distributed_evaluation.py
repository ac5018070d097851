"""Evaluation by two processes with a share each, compared with one process."""

import pytest

from keras_vit.cli import main
from tests.fixtures.distributed.processes import finish, printed_json, start, start_two
from tests.fixtures.features import digits_classifier
from tests.fixtures.images import write_folder

pytest.importorskip("jax", reason="the JAX backend is not installed")
pytestmark = pytest.mark.backends("jax", reason="its processes have the JAX backend")
BROKEN = (3, 8, 11)
ON_JAX = {"KERAS_BACKEND": "jax"}
MODULE = "tests.fixtures.distributed.evaluation"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write a folder with 131 test images, 3 of them broken."""
    root = tmp_path_factory.mktemp("photos")
    write_folder(root / "train", ("cat", "dog"), count=2)
    write_folder(root / "test", ("cat",), count=60)
    write_folder(root / "test", ("dog",), count=71)
    for index in BROKEN:
        path = root / "test" / "dog" / f"{index}.jpg"
        path.write_bytes(path.read_bytes()[:200])
    return root


@pytest.mark.processes
def test_two_devices_and_two_processes_have_the_metrics_of_one(photos):
    command = (MODULE, "--data", "digits", f"folder:{photos}", "--strategy")
    expected = printed_json(start(*command, "none", **ON_JAX))
    assert [figures["images"] for figures in expected] == [359, 131 - len(BROKEN)]
    on_devices = start(*command, "data_parallel", "--devices", "2", **ON_JAX)
    for process in (on_devices, *start_two(*command, "data_parallel", **ON_JAX)):
        for ours, theirs in zip(printed_json(process), expected, strict=True):
            assert ours["confusion"] == theirs["confusion"]
            for name in theirs.keys() - {"confusion"}:
                assert ours[name] == pytest.approx(theirs[name], rel=0, abs=1e-6)


@pytest.mark.processes
def test_the_command_in_two_processes(photos, tmp_path, capsys):
    path = tmp_path / "model.keras"
    digits_classifier(2).save(path)
    arguments = ["evaluate", str(path), "--data", f"folder:{photos}", "--batch-size", "50"]
    main([*arguments, "--per-class"])
    alone = capsys.readouterr().out.splitlines()
    assert alone[0].startswith("3 of 131 images were skipped: test/dog/11.jpg (")
    first, second = map(finish, start_two("keras_vit", *arguments, "--per-class", **ON_JAX))
    # The first process prints the table. Each prints the skipped images of its share, and the
    # library that connects the processes logs it.
    printed = [
        [line for line in text.splitlines() if "skipped" not in line and "[Gloo]" not in line]
        for text in (first, second)
    ]
    assert printed == [alone[1:], []]
