"""A directory that belongs to one job."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from keras_vit.core.run_dir import RunDir

SQUARES = """
import sys, time
from keras_vit.core.run_dir import RunDir
with RunDir(sys.argv[1], {"squares": 20}, resume=True).open() as job:
    for number in range(20):
        if f"{number}.txt" not in job.contents():
            time.sleep(0.01)
            job.write(f"{number}.txt", str(number**2))
"""


def test_a_killed_job_is_resumed(tmp_path):
    draw, path = random.Random(0), tmp_path / "job"
    path.mkdir()
    # What a process leaves that is killed while it writes a part.
    (path / ".3.partial.0.txt").write_text("hal")
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SQUARES, path])
        time.sleep(draw.uniform(0.1, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", SQUARES, path], check=True)
    names = {path.name for path in path.iterdir()}
    assert names == {"settings.json", *(f"{number}.txt" for number in range(20))}
    assert (path / "7.txt").read_text() == "49"


def begin(path, settings, found=None, **options):
    with RunDir(path, settings, **options).open() as job:
        job.add(found or {})
        job.write("part", "")
        return job


def test_settings_are_compared_and_recorded(tmp_path):
    begin(tmp_path, {"steps": 5, "nested": {"rate": 0.1}, "place": "here"})
    with pytest.raises(ValueError, match="holds a job, which `resume` continues"):
        begin(tmp_path, {"steps": 5})
    changed = {"steps": 5, "nested": {"rate": 0.3}, "place": "there", "classes": ("a", "b")}
    options = {"resume": True, "may_differ": ("place",)}
    with pytest.raises(ValueError, match="Received: nested.rate=0.3 instead of 0.1$"):
        begin(tmp_path, changed, **options)
    same = {**changed, "nested": {"rate": 0.1}}
    first = begin(tmp_path, same, **options)
    recorded = json.loads((tmp_path / "settings.json").read_text())
    assert recorded == {**same, "classes": ["a", "b"]}
    assert begin(tmp_path, {**same, "place": "elsewhere"}, **options).identity == first.identity


def test_facts_that_are_found_later_are_settings(tmp_path):
    for _ in range(2):
        begin(tmp_path, {}, {"digest": "a"}, resume=True)
    with pytest.raises(ValueError, match="digest='b' instead of 'a'"):
        begin(tmp_path, {"place": "there"}, {"digest": "b"}, resume=True, may_differ=("place",))
    # A place that is refused is not recorded.
    assert "place" not in (tmp_path / "settings.json").read_text()


def test_only_one_process_works_in_it(tmp_path):
    message = "Only one process may work in a directory"
    with RunDir(tmp_path, {}).open(), pytest.raises(ValueError, match=message):
        begin(tmp_path, {}, resume=True)


def test_processes_share_a_directory(tmp_path):
    """Settings are compared, and what another process writes stays."""
    settings, part = {"images": "a"}, tmp_path / ".3.partial.0.txt"
    with RunDir(tmp_path, settings, resume=True).open(shared=True) as first:
        # Another process is writing it.
        part.write_text("hal")
        with RunDir(tmp_path, settings, resume=True).open(shared=True) as second:
            first.write("1.txt", "")
            second.write("2.txt", "")
        with pytest.raises(ValueError, match="images='b' instead of 'a'"):
            share(tmp_path, {"images": "b"})
    assert first.contents() == ["1.txt", "2.txt"] and part.exists()
    os.utime(part, (0, 0))
    share(tmp_path, settings)
    assert not part.exists()


def share(path, settings):
    with RunDir(path, settings, resume=True).open(shared=True):
        pass


def test_a_process_that_fails_leaves_the_settings_to_the_others(tmp_path):
    with pytest.raises(ZeroDivisionError), RunDir(tmp_path, {}).open(shared=True):
        raise ZeroDivisionError
    assert (tmp_path / "settings.json").exists()


def test_a_directory_of_a_job_that_works_alone_is_not_waited_for(tmp_path):
    with RunDir(tmp_path, {}, file="run.json").open():
        (tmp_path / "part").touch()
        with pytest.raises(ValueError, match="which holds part, run.json"):
            share(tmp_path, {})


def test_a_failed_begin_leaves_nothing_but_what_was_there(tmp_path):
    def fail(path, name):
        with RunDir(path, {}, scratch=("log",)).open() as job:
            job.write(name, "")
            raise ZeroDivisionError

    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(ZeroDivisionError):
            fail(path, "log")
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path / "kept", "part")
    assert (tmp_path / "kept" / "part").exists()
    with pytest.raises(ValueError, match="which holds empty, kept"):
        begin(tmp_path, {})


def test_processes_of_a_job_record_the_settings_of_each_other(tmp_path):
    first, second = (RunDir(tmp_path, {"steps": 5}, resume=True) for _ in range(2))
    with first.open(shared=True), second.open(shared=True):
        first.add({"digits": "a"})
        second.add({"photos": "b"})
        with pytest.raises(ValueError, match="digits='c' instead of 'a'"):
            second.add({"digits": "c"})
    with pytest.raises(ValueError, match="digits='c' instead of 'a'"):
        share(tmp_path, {"steps": 5, "digits": "c"})
