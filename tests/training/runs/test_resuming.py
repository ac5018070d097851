"""Stopped runs resume as if they had not been stopped."""

import dataclasses
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_vit.models import vision_transformer
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.resumable_fit import find_state
from keras_vit.training.save_callbacks import save_model
from keras_vit.training.states import States
from tests.fixtures.images import write_folder
from tests.fixtures.run_to_be_killed import RECIPE, small_teacher, train
from tests.fixtures.small_runs import CLASSES
from tests.fixtures.stopped import assert_same_variables, stopped
from tests.fixtures.tiny import TINY

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")


@pytest.fixture
def photos(tmp_path):
    """A folder in which some files of the training split are not images."""
    folder = write_folder(tmp_path / "photos", classes=CLASSES, count=40)
    for path in folder.glob("*/*7.jpg"):
        path.write_bytes(b"")
    return f"folder:{folder}"


@pytest.mark.examples
@pytest.mark.parametrize("teacher", [None, small_teacher], ids=["alone", "with a teacher"])
def test_a_stopped_run_goes_on(teacher, tmp_path, photos, capsys):
    """Stopped in the second of three epochs, between the two batches of an update."""
    recipe = dataclasses.replace(RECIPE, steps=18)

    def begin(name):
        options = {"teacher": teacher()} if teacher else {}
        return train(tmp_path / name, recipe, photos, **options)

    whole, expected = begin("whole")
    with stopped(17):
        begin("stopped")
    states = [path.name for path in (tmp_path / "stopped" / "states").iterdir()]
    assert "batch-000000017.npz" in states
    capsys.readouterr()
    resumed, metrics = begin("stopped")
    assert metrics == expected
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Epoch")] == ["Epoch 2/3", "Epoch 3/3"]
    assert_same_variables(resumed.variables, whole.variables, atol=1e-6)
    for file in ("metrics.jsonl", "skipped.txt"):
        assert (tmp_path / "stopped" / file).read_text() == (tmp_path / "whole" / file).read_text()
    # A run that has ended is not trained again.
    ended, metrics = begin("stopped")
    assert metrics == expected
    assert_same_variables(ended.variables, resumed.variables)


@pytest.mark.large
@pytest.mark.parametrize("others", [[], ["teacher"]], ids=["alone", "with a teacher"])
def test_a_run_is_killed_20_times(tmp_path, others):
    """At any moment from the imports on, most often just after something was saved."""
    draw = random.Random(0)

    def start(name):
        command = [sys.executable, "-m", "tests.fixtures.run_to_be_killed", tmp_path / name]
        arguments = [tmp_path / f"{name}.npz", "600", *others]
        return subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL)

    def files():
        return sorted(path.name for path in (tmp_path / "killed").rglob("*.npz"))

    assert start("whole").wait() == 0
    for kill in range(20):
        process, before = start("killed"), files()
        end = time.monotonic() + (draw.uniform(0, 10) if kill % 5 == 0 else 60)
        while files() == before and time.monotonic() < end:
            assert process.poll() is None, "the run was over before it was killed 20 times"
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.5))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert start("killed").wait() == 0
    whole, killed = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "killed"))
    for name in whole.files:
        np.testing.assert_array_equal(killed[name], whole[name])
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "killed")]
    assert metrics[0] == metrics[1]


@pytest.fixture
def compiled():
    model = vision_transformer(**{**TINY, "image_size": RECIPE.image_size})
    model.compile(make_optimizer(RECIPE, model, 10))
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def full_disk():
    """Limit the size of each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_what_was_saved(tmp_path, compiled, full_disk):
    states = States(tmp_path / "states", keep=1)
    states.save(compiled, 1, {})
    save_model(compiled, tmp_path / "last.keras")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    full_disk(10_000)
    with pytest.raises(OSError, match="batch-000000002.npz' could not be written.*"):
        states.save(compiled, 2, {})
    with pytest.raises(OSError, match="last.keras' could not be written"):
        save_model(compiled, tmp_path / "last.keras")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_the_last_states_are_kept(tmp_path, compiled):
    states = States(tmp_path, keep=2)
    for batch in (1, 2, 3):
        states.save(compiled, batch, {"history": [batch]})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["batch-000000002.npz", "batch-000000003.npz"]
    assert states.load()[1] == {"batch": 3, "history": [3]}
    # A damaged state is skipped.
    (tmp_path / "batch-000000003.npz").write_bytes(b"PK")
    assert states.load()[1]["batch"] == 2
    (tmp_path / "batch-000000002.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="must have a readable state.*2 damaged"):
        states.load()


def test_a_damaged_last_state_does_not_outlive_the_good_ones(tmp_path, compiled):
    states = States(tmp_path, keep=1)
    (tmp_path / "batch-000000030.npz").write_bytes(b"PK")
    for batch in (20, 23):
        states.save(compiled, batch, {})
        assert states.load()[1]["batch"] == batch
    assert [path.name for path in tmp_path.iterdir()] == ["batch-000000023.npz"]


def test_states_of_another_run_and_epochs_without_states_are_refused(tmp_path, compiled):
    States(tmp_path / "states").save(compiled, 1, {"run": "one"})
    assert find_state(tmp_path, "one")[1]["batch"] == 1
    with pytest.raises(ValueError, match="must have the states of its own run"):
        find_state(tmp_path, "another")
    (tmp_path / "states" / "batch-000000001.npz").rename(tmp_path / "last.keras")
    # A run may be killed between the model and the state of its first epoch.
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "loss": 1.0}\n')
    assert find_state(tmp_path, "one") is None
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "loss": 1.0}\n')
    with pytest.raises(ValueError, match="the metrics of several epochs and no states"):
        find_state(tmp_path, "one")
    assert find_state(tmp_path / "new", "one") is None
