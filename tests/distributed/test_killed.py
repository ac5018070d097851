"""The command that writes predictions, killed again and again."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.fixtures.predicted.parts import assert_same_rows, rows_of

KILLS = 10


@pytest.mark.large
@pytest.mark.parametrize("processes", [1, 2])
def test_it_ends_with_the_same_rows(processes, path, photos, tmp_path):
    def start(output):
        command = [sys.executable, "-m", "keras_vit", "predict", path, photos, "--output", output]
        command += ["--part-size", "2", "--batch-size", "2", "--processes", str(processes)]
        return subprocess.Popen(command, start_new_session=True)

    assert start(tmp_path / "whole").wait() == 0
    expected = rows_of(tmp_path / "whole")
    output, moments = tmp_path / "killed", random.Random(processes)
    kills = 0
    while kills < KILLS:
        process = start(output)
        before = _count(output)
        # While it imports, loads, or writes: from the last file on that it could write.
        deadline = time.monotonic() + moments.uniform(0, 20)
        while time.monotonic() < deadline and process.poll() is None:
            if _count(output) > before + moments.randrange(3):
                break
            time.sleep(0.005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        if _count(output) == 20:
            # Take some away, so that there is something to be killed at.
            for part in moments.sample(sorted(output.glob("*.parquet")), 15):
                part.unlink()
    assert start(output).wait() == 0
    assert_same_rows(rows_of(output), expected)


def _count(output):
    return len(list(output.glob("*.parquet")))
