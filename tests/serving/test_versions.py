"""The versions of a model, even if the processes that write them are killed."""

import random
import subprocess
import sys
import time

import pytest

from keras_vit.serving.export import export
from keras_vit.serving.formats import find_export, version_folders
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import NAMES, classifier, files


def taken_versions(directory):
    return [number for number, _ in version_folders(directory)]


@pytest.mark.slow
def test_versions_are_counted_on_and_found(tmp_path):
    model = classifier()
    directory = tmp_path / "serving" / "pets"
    assert export(model, directory, class_names=NAMES) == directory / "1"
    assert export(model, directory) == directory / "2"
    assert export(model, directory, version=7) == directory / "7"
    assert export(model, directory) == directory / "8"
    assert taken_versions(directory) == [1, 2, 7, 8]
    assert not list(directory.glob(".*"))
    assert (directory / "1" / "assets" / "labels.txt").read_text() == "cat\ndog\neel\n"
    assert find_export(directory) == directory / "8"
    assert find_export(directory / "2") == directory / "2"
    assert find_export(tmp_path) is None
    assert find_export(tmp_path / "nothing") is None


def test_the_newest_version_is_that_of_tf_serving(tmp_path):
    """A server reads 007 as 7, and serves the newest directory or none."""
    for name in ("2", "007", "new"):
        (tmp_path / name).mkdir()
    assert find_export(tmp_path) is None
    (tmp_path / "2" / "model.onnx").touch()
    with pytest.raises(ValueError, match="The newest version"):
        find_export(tmp_path)
    (tmp_path / "007" / "model.onnx").touch()
    assert find_export(tmp_path) == tmp_path / "007"
    (tmp_path / "7").mkdir()
    with pytest.raises(ValueError, match="must be one directory"):
        find_export(tmp_path)
    assert find_export(tmp_path / "2") == tmp_path / "2"


@pytest.mark.parametrize("version", [0, 1.5, 2**63, 3])
def test_versions_that_are_taken_or_no_numbers_are_refused(version, tmp_path):
    (tmp_path / "3").mkdir()
    with pytest.raises(ValueError, match="`version` must be a positive integer"):
        export(classifier(), tmp_path, version=version)


COUNTING = """
import sys
from keras_vit.serving.export import new_version
for attempt in range(20):
    with new_version(sys.argv[1]) as (folder, publish):
        written = folder / "written"
        written.mkdir()
        (written / "number").write_text(folder.name)
        if attempt % 4:
            publish(written)
"""


@pytest.mark.large
def test_processes_wait_for_each_other(tmp_path):
    """Even if some publish nothing and the directory does not exist at first."""
    command = [sys.executable, "-c", COUNTING, tmp_path / "new" / "model"]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    versions = taken_versions(tmp_path / "new" / "model")
    assert versions == list(range(1, 31))
    for version in versions:
        path = tmp_path / "new" / "model" / str(version) / "number"
        assert path.read_text() == f".{version}.partial"


EXPORTING_FOR_EVER = """
import sys
import keras_vit
model = keras_vit.ViT_Ti16(num_classes=2, image_size=16)
while True:
    keras_vit.export(model, sys.argv[1], signatures=("bytes",), warmup_batch_sizes=(1,))
"""


@pytest.mark.large
def test_killed_exports_leave_whole_versions_or_none(tmp_path):
    draw = random.Random(0)
    interrupted = 0
    for _ in range(5):
        before = taken_versions(tmp_path)
        command = [sys.executable, "-c", EXPORTING_FOR_EVER, tmp_path]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # After the import and the first export.
        while taken_versions(tmp_path) == before:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 3))
        process.kill()
        process.wait()
        interrupted += bool(list(tmp_path.glob(".*")))
    assert interrupted
    versions = taken_versions(tmp_path)
    for version in versions:
        assert (tmp_path / str(version) / "model.json").is_file()
        assert load_runner(tmp_path / str(version))([files(1)[0]]).shape == (1, 2)
    export(classifier(), tmp_path, warmup_batch_sizes=())
    assert taken_versions(tmp_path) == [*versions, versions[-1] + 1]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_a_version_cannot_contain_versions(tmp_path):
    path = export(classifier(), tmp_path)
    with pytest.raises(ValueError, match="`directory` must be a folder of numbered versions"):
        export(classifier(), path)
    assert not (path / "1").exists()
