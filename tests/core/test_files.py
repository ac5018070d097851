"""A directory is locked by one process at a time, and a killed process leaves no lock."""

import signal
import subprocess
import sys

import pytest

from keras_vit.core.files import exclusive_lock

HOLD = """
import sys
import time
from keras_vit.core.files import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(600)
"""
ADD = """
import pathlib
import sys
from keras_vit.core.files import exclusive_lock
path = pathlib.Path(sys.argv[1], "count")
for _ in range(20):
    with exclusive_lock(path.parent):
        path.write_text(str(int(path.read_text()) + 1))
"""


def start(code, path):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    with start(HOLD, tmp_path) as process:
        assert process.stdout.readline() == "locked\n"
        locked = pytest.raises(TimeoutError, match="could not be acquired")
        with locked, exclusive_lock(tmp_path, wait=False):
            pass
        process.send_signal(signal.SIGKILL)
    with exclusive_lock(tmp_path, wait=False):
        pass
    assert not list(tmp_path.iterdir())


def test_processes_take_turns(tmp_path):
    (tmp_path / "count").write_text("0")
    processes = [start(ADD, tmp_path) for _ in range(3)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert (tmp_path / "count").read_text() == "60"


def test_an_error_releases_the_lock(tmp_path):
    with pytest.raises(KeyError), exclusive_lock(tmp_path):
        raise KeyError
    with exclusive_lock(tmp_path, wait=False):
        pass
