"""`keras-vit predict --output`: parts, shards and processes have the same rows."""

import errno
import json
import os
import pickle
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

from keras_vit.data.images.decoding import decode
from keras_vit.data.inputs import PREDICTIONS_RECORD as RECORD
from keras_vit.distributed import process_pool
from keras_vit.distributed.batch import Job
from keras_vit.serving import Predictor
from tests.fixtures.commands import error_of, failure_of, run
from tests.fixtures.images import write_folder
from tests.fixtures.models import NAMES, classifier, preprocessed
from tests.fixtures.predicted.parts import assert_same_rows, rows_of

OUTPUTS = ("prediction", "probability", "logits", "features")
OF_ALL = ("--outputs", *OUTPUTS, "probabilities", "attention_distance")


@pytest.fixture(scope="module")
def arguments(path, photos):
    return ("predict", path, photos, "--part-size", 12, "--outputs", *OUTPUTS)


@pytest.fixture(scope="module")
def expected(arguments, tmp_path_factory):
    """The rows of one process in one part."""
    output = tmp_path_factory.mktemp("expected")
    job = Job(Predictor(arguments[1], OUTPUTS), (str(arguments[2]),), output, part_size=100)
    job.begin()
    assert job.write(0) == (40, 2)
    return rows_of(output)


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
    assert broken.pop("error") == "HTML or XML, which is not decoded"
    assert set(broken.values()) == {None}
    assert decode(encoded[0]).shape == (16, 16, 3)


@pytest.mark.slow
def test_parts_shards_and_processes_have_the_same_rows(arguments, expected, tmp_path, capsys):
    printed = run(capsys, *arguments, "--output", tmp_path / "one")
    assert "40 images predicted, 2 of them cannot be decoded" in printed
    assert_same_rows(rows_of(tmp_path / "one"), expected)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == [RECORD, *(f"part-{part:05d}-of-00004.parquet" for part in range(4))]
    for shard in (2, 1):
        run(capsys, *arguments, "--output", tmp_path / "two", "--shard", f"{shard}/2")
    assert_same_rows(rows_of(tmp_path / "two"), expected)
    run(capsys, *arguments, "--output", tmp_path / "three", "--processes", 2)
    assert_same_rows(rows_of(tmp_path / "three"), expected)
    printed = run(capsys, *arguments, "--output", tmp_path / "three", "--processes", 2)
    assert "4 of 4 files are there already" in printed and "images predicted" not in printed


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
    assert "2 of 4 files are there already" in run(capsys, *arguments, "--output", output)
    assert_same_rows(rows_of(output), expected)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert not abandoned.exists()


def test_another_job_does_not_begin_before_the_first_part_is_there(path, photos, tmp_path):
    first, second = (
        Job(Predictor(path, outputs), (str(photos),), tmp_path / "one", part_size=20)
        for outputs in (["logits"], ["prediction"])
    )
    first.begin()
    with pytest.raises(ValueError, match="Received: outputs=.'prediction'. instead of .'logits'."):
        second.begin()
    assert json.loads((tmp_path / "one" / RECORD).read_text())["outputs"] == ["logits"]
    first.begin()


def test_a_job_is_pickled_without_its_images(path, photos, tmp_path):
    job = Job(Predictor(path), (str(photos),), tmp_path / "one", part_size=20)
    assert job.count == 2
    copy = pickle.loads(pickle.dumps(job))
    assert copy.missing() == job.missing() == [0, 1] and "rows" in vars(job)
    assert not copy.output.exists()


def test_predictions_of_another_program_are_left_alone(arguments, tmp_path, capsys):
    (tmp_path / "part-00000-of-00004.parquet").write_bytes(b"precious")
    line = error_of(capsys, *arguments, "--output", tmp_path)
    assert "which holds part-00000-of-00004.parquet" in line
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000-of-00004.parquet"]


@pytest.mark.slow
def test_an_error_in_a_process_is_its_own(path, photos, tmp_path):
    damaged = tmp_path / "model.keras"
    damaged.write_bytes(path.read_bytes()[:1000])
    job = Job(Predictor(damaged), (str(photos),), tmp_path / "one", part_size=20)
    job.begin()
    with pytest.raises(ValueError, match="`model` must be a complete Keras model"):
        process_pool.write_parts(job, job.missing(), processes=2)


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
        line = error_of(capsys, *changed, "--output", output)
        assert "must have the settings it was begun with" in line and f"{name}=" in line
    assert sorted(output.iterdir()) == before
    # A copy of the model elsewhere is the same.
    copy = shutil.copy(path, tmp_path / "copy.keras")
    changed = [copy if value == path else value for value in arguments]
    run(capsys, *changed, "--output", output)


def test_a_directory_with_something_else_is_left_alone(arguments, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    line = error_of(capsys, *arguments, "--output", tmp_path)
    assert "must be a new or empty directory" in line and "which holds thesis.txt" in line
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert "exists" in failure_of(capsys, *arguments, "--output", tmp_path / "thesis.txt")


def test_a_full_disk_is_named_and_nothing_is_lost(
    arguments, expected, tmp_path, capsys, monkeypatch
):
    write, parts = pyarrow.parquet.write_table, []

    def write_or_fail(table, path):
        parts.append(path)
        write(table, path)
        if len(parts) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.parquet.write_table", write_or_fail)
    with pytest.raises(SystemExit):
        run(capsys, *arguments, "--output", tmp_path / "one")
    assert "could not be written: [Errno 28] No space left" in capsys.readouterr().err
    assert len(list((tmp_path / "one").glob("*.parquet"))) == 2
    assert not list((tmp_path / "one").glob(".*"))
    run(capsys, *arguments, "--output", tmp_path / "one")
    assert_same_rows(rows_of(tmp_path / "one"), expected)


def test_a_process_that_is_killed_is_named_and_the_rest_is_written_later(
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
    with pytest.raises(OSError, match="a process ended before its part was written: .* missing"):
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


@pytest.mark.parametrize("is_whole", [True, False])
def test_other_pictures_of_the_same_names_are_not_predicted_already(
    is_whole, path, tmp_path, capsys
):
    photos = write_folder(tmp_path / "photos")
    command = ("predict", path, photos, "--part-size", 4, "--output", tmp_path / "found")
    if is_whole:
        run(capsys, *command)
    else:
        # As after a kill.
        run(capsys, *command, "--shard", "1/2")
    shutil.copy(photos / "dog" / "1.jpg", photos / "cat" / "1.jpg")
    line = error_of(capsys, *command)
    assert "must have the settings it was begun with. Received: digest_of_images=" in line
