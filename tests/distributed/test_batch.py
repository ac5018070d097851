"""`keras-vit predict --output`: parts, shards and processes have the same rows."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import psutil
import pyarrow.parquet
import pytest

from keras_vit.data.inputs import PREDICTIONS_RECORD as RECORD
from keras_vit.distributed import process_pool
from keras_vit.distributed.batch import Job
from keras_vit.serving import Predictor
from tests.fixtures.commands import error_of, run
from tests.fixtures.images import write_folder
from tests.fixtures.models import NAMES, classifier, preprocessed
from tests.fixtures.predicted.parts import OUTPUTS, assert_same_rows, rows_of

OF_ALL = ("--outputs", *OUTPUTS, "probabilities", "attention_distance")


@pytest.fixture(scope="module")
def arguments(path, photos):
    return ("predict", path, photos, "--part-size", 12, "--outputs", *OUTPUTS)


@pytest.mark.slow
def test_rows_are_those_of_the_model(expected, path, photos):
    model = keras.models.load_model(path)
    sound = {id: row for id, row in expected.items() if row["error"] is None}
    assert len(expected) == 40 and len(sound) == 38
    encoded = [(photos / id).read_bytes() for id in sound]
    logits = model.predict(preprocessed(encoded, model.input_shape[1:3]), verbose=0)
    for row, own in zip(sound.values(), logits, strict=True):
        np.testing.assert_allclose(row["logits"], own, atol=1e-5)
        assert row["prediction"] == NAMES[own.argmax()]
        assert len(row["features"]) == model.get_layer("head").kernel.shape[0]
    broken = dict(expected["cat/5.jpg"])
    assert broken.pop("error") is not None and set(broken.values()) == {None}


@pytest.mark.slow
def test_parts_shards_and_processes_have_the_same_rows(arguments, expected, tmp_path, capsys):
    run(capsys, *arguments, "--output", tmp_path / "one")
    assert_same_rows(rows_of(tmp_path / "one"), expected)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == [RECORD, *(f"part-{part:05d}-of-00004.parquet" for part in range(4))]
    for shard in (2, 1):
        run(capsys, *arguments, "--output", tmp_path / "two", "--shard", f"{shard}/2")
    assert_same_rows(rows_of(tmp_path / "two"), expected)
    run(capsys, *arguments, "--output", tmp_path / "three", "--processes", 2)
    assert_same_rows(rows_of(tmp_path / "three"), expected)


def test_what_is_missing_or_damaged_is_written_again(arguments, expected, tmp_path, capsys):
    output = tmp_path / "one"
    run(capsys, *arguments, "--output", output)
    first, second, third, fourth = sorted(output.glob("*.parquet"))
    times = {path: path.stat().st_mtime_ns for path in (first, fourth)}
    second.unlink()
    third.write_bytes(third.read_bytes()[:100])
    abandoned = output / ".part-00000.partial.0a.parquet"
    abandoned.write_bytes(b"")
    os.utime(abandoned, (0, 0))
    assert "2 of 4 files exist already" in run(capsys, *arguments, "--output", output)
    assert_same_rows(rows_of(output), expected)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert not abandoned.exists()


def test_another_job_does_not_begin_before_the_first_part_is_there(path, photos, tmp_path):
    first, second = (
        Job(Predictor(path, outputs), (str(photos),), tmp_path / "one", part_size=20)
        for outputs in (["logits"], ["prediction"])
    )
    first.begin()
    with pytest.raises(ValueError, match="Received: outputs="):
        second.begin()
    assert json.loads((tmp_path / "one" / RECORD).read_text())["outputs"] == ["logits"]


@pytest.mark.slow
def test_every_output_and_several_labels(photos, tmp_path, capsys):
    model = classifier()
    model.class_names, model.thresholds = NAMES, (0.3, 0.5, 0.4)
    model.save(tmp_path / "model.keras")
    lines = [f"{path},{path.parent.name} old\n" for path in photos.rglob("*.jpg")]
    lines = [line.removeprefix(f"{photos}/") for line in lines]
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "labels.csv").write_text("".join(lines))
    name = f"csv:{tmp_path}/photos/labels.csv"
    run(capsys, "predict", tmp_path / "model.keras", name, "--output", tmp_path / "one", *OF_ALL)
    rows = rows_of(tmp_path / "one")
    assert rows["cat/0.jpg"]["label"] == ["cat", "old"] and len(rows) == 40
    for row in rows.values():
        if row["error"] is None:
            above = [p > t for p, t in zip(row["probabilities"], model.thresholds, strict=True)]
            expected = {name for name, is_above in zip(NAMES, above, strict=True) if is_above}
            assert set(row["prediction"]) == expected
            distances = np.array(row["attention_distance"])
            assert distances.shape == (2, 2) and np.isfinite(distances).all()


def test_a_file_that_is_being_written_stays(path, photos, tmp_path):
    job = Job(Predictor(path), (str(photos),), tmp_path / "one")
    job.begin()
    partial = tmp_path / "one" / ".part-00000.partial.0a.parquet"
    partial.write_bytes(b"")
    job.begin()
    assert partial.exists()


@pytest.mark.slow
def test_a_directory_is_of_one_job(arguments, path, photos, tmp_path, capsys):
    output = tmp_path / "one"
    run(capsys, *arguments, "--output", output, "--shard", "1/4")
    before = sorted(output.iterdir())
    retrained = shutil.copy(path, tmp_path / "retrained.keras")
    model = keras.models.load_model(retrained)
    model.get_layer("head").bias.assign([1, 2, 3])
    model.save(retrained)
    shutil.copytree(photos, tmp_path / "more")
    (tmp_path / "more" / "cat" / "new.jpg").write_bytes(b"")
    for changes, name in (
        ({1: retrained}, "digest_of_model"),
        ({2: tmp_path / "more"}, "images"),
        ({4: 13}, "part_size"),
        ({6: "logits"}, "outputs"),
    ):
        changed = [changes.get(index, value) for index, value in enumerate(arguments)]
        assert f"{name}=" in error_of(capsys, *changed, "--output", output)
    assert sorted(output.iterdir()) == before
    # A copy of the model elsewhere is the same.
    copy = shutil.copy(path, tmp_path / "copy.keras")
    changed = [copy if value == path else value for value in arguments]
    run(capsys, *changed, "--output", output)


@pytest.mark.parametrize("name", ["thesis.txt", "part-00000-of-00004.parquet"])
def test_a_directory_with_something_else_is_left_alone(name, arguments, tmp_path, capsys):
    (tmp_path / name).write_text("precious")
    assert "must be a new or empty" in error_of(capsys, *arguments, "--output", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_nothing_is_lost_on_a_full_disk(arguments, expected, tmp_path, capsys, monkeypatch):
    write, parts = pyarrow.parquet.write_table, []

    def write_or_fail(table, path):
        parts.append(path)
        write(table, path)
        if len(parts) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.parquet.write_table", write_or_fail)
    with pytest.raises(SystemExit):
        run(capsys, *arguments, "--output", tmp_path / "one")
    assert len(list((tmp_path / "one").glob("*.parquet"))) == 2
    assert not list((tmp_path / "one").glob(".*"))
    run(capsys, *arguments, "--output", tmp_path / "one")
    assert_same_rows(rows_of(tmp_path / "one"), expected)


def test_the_parts_of_a_process_that_is_killed_are_written_later(
    arguments, expected, tmp_path, capsys
):
    output = tmp_path / "one"
    job = Job(Predictor(arguments[1], OUTPUTS), (str(arguments[2]),), output, part_size=12)
    job.begin()

    def kill_one():
        # A pool that breaks before its second process has started would wait for it for good.
        while len(children := _children()) < 2:
            time.sleep(0.1)
        os.kill(children[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(OSError, match="a process was killed before its part"):
        process_pool.write_parts(job, job.missing(), processes=2)
    killer.join()
    run(capsys, *arguments, "--output", output)
    assert_same_rows(rows_of(output), expected)


@pytest.mark.slow
def test_processes_end_with_a_command_that_is_killed(path, photos, tmp_path):
    command = ["predict", path, photos, "--output", tmp_path / "one", "--processes", "2"]
    killed = subprocess.Popen([sys.executable, "-m", "keras_vit", *command, "--part-size", "1"])
    while not list((tmp_path / "one").glob("*.parquet")):
        assert killed.poll() is None
        time.sleep(0.05)
    children = psutil.Process(killed.pid).children(recursive=True)
    assert len(children) >= 2
    killed.kill()
    killed.wait()
    assert psutil.wait_procs(children, timeout=20)[1] == []


def _children():
    """The processes that `multiprocessing` has spawned, without its resource tracker."""
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]


def test_other_pictures_of_the_same_names_are_not_predicted_already(path, tmp_path, capsys):
    photos = write_folder(tmp_path / "photos")
    command = ("predict", path, photos, "--part-size", 4, "--output", tmp_path / "found")
    run(capsys, *command)
    shutil.copy(photos / "dog" / "1.jpg", photos / "cat" / "1.jpg")
    assert "Received: digest_of_images=" in error_of(capsys, *command)
