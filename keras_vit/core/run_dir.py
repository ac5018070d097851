"""`RunDir`: the directory of one job, which is locked and records the settings of the job."""

import contextlib
import hashlib
import json
import pathlib
import shutil
import time

from keras_vit.core.files import LOCK_FILE, PARTIAL, exclusive_lock, write_text

# If processes share a directory, a partial file without a write for so many seconds is deleted.
_ABANDONED = 600


class RunDir:
    """A directory of one job, with a file that records the settings of the job.

    Args:
        path: path of a new or empty directory, or of the directory of the job to resume.
        settings: dictionary that JSON can store.
        resume: whether to resume the job in the directory; if there is no job, a new one begins.
        file: name of the file that records the settings.
        may_differ: names of settings that may differ when the job is resumed, such as paths.
        scratch: names of files and directories that are not results. If a new job fails and the
            directory has no other files, all files are deleted.

    Attributes:
        recorded: dictionary of the settings that were read from the file; empty for a new job.

    Example:
    >>> from keras_vit.core.run_dir import RunDir
    >>> with RunDir(tmp_path / "job", {"steps": 5}).open() as job:
    ...     _ = job.write("result.txt", "done")
    >>> with RunDir(tmp_path / "job", {"steps": 8}, resume=True).open() as job:
    ...     pass
    Traceback (most recent call last):
    ValueError: A resumed job must have the settings it was begun with. Received: steps=8 instead...
    """

    def __init__(
        self, path, settings, resume=False, *, file="settings.json", may_differ=(), scratch=()
    ):
        self.path = pathlib.Path(path).expanduser().resolve()
        self.settings = settings
        self.resume = resume
        self.file = file
        self.may_differ = may_differ
        self.scratch = scratch
        self.recorded = {}

    @contextlib.contextmanager
    def open(self, shared=False):
        """Begin or resume the job in a `with`.

        Args:
            shared: whether several processes may do parts of the job at the same time. The lock is
                then released after the check of the settings, and an error deletes no files.

        Raises:
            ValueError: if the directory contains something else or a job with other settings, or
                another process uses the directory.
            OSError: if the directory cannot be written.
        """
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.ExitStack() as lock:
                if shared:
                    # Without this check, the process could wait for a job that it cannot join.
                    self.check()
                try:
                    lock.enter_context(exclusive_lock(self.path, wait=shared))
                except TimeoutError as error:
                    raise ValueError(
                        "Only one process may work in a directory. "
                        f"Received: {str(self.path)!r}, in which another process works"
                    ) from error
                is_new_job = self._begin(shared)
                if shared:
                    lock.close()
                try:
                    yield self
                except BaseException:
                    if is_new_job and not shared and {*self.contents()} <= {*self.scratch}:
                        self._remove()
                    raise
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise

    def add(self, settings):
        """Compare further settings with the recorded settings, and record all of them."""
        file = self.path / self.file
        if file.is_file():
            # Another process may have recorded further settings.
            self.recorded = json.loads(file.read_text(encoding="utf-8"))
        self._compare(settings)
        self.write(self.file, json.dumps({**self.recorded, **self.settings}, indent=2) + "\n")

    def _compare(self, settings):
        self.settings = json.loads(json.dumps({**self.settings, **settings}))
        changed = [
            f"{name}={new!r} instead of {old!r}"
            for name, old, new in _changes(self.recorded, self.settings)
            if name not in self.may_differ
        ]
        if changed:
            raise ValueError(
                "A resumed job must have the settings it was begun with. "
                f"Received: {', '.join(changed)}"
            )

    @property
    def identity(self):
        """A digest of all settings added so far, except those in `may_differ`."""
        compared = {
            n: value for n, value in _flat(self.settings).items() if n not in self.may_differ
        }
        return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]

    def contents(self):
        """Return the sorted names of all files and directories except settings and lock."""
        names = (path.name for path in self.path.glob("*") if PARTIAL not in path.name)
        return sorted({*names} - {self.file, LOCK_FILE})

    def write(self, name, text):
        """Write a text file whole or not at all, and return its path."""
        write_text(self.path / name, text)
        return self.path / name

    def check(self):
        """Return whether there is a job to resume; `False` if the directory is new or empty.

        Raises:
            ValueError: if the directory holds something else, or a job and `resume` is false.
        """
        holds_job, names = (self.path / self.file).is_file(), self.contents()
        if (holds_job or names) and not (holds_job and self.resume):
            found = "a job, which `resume` continues" if holds_job else ", ".join(names[:3])
            raise ValueError(
                "`workdir` must be a new or empty directory, or that of the job to resume. "
                f"Received: workdir={str(self.path)!r}, which holds {found}"
            )
        return holds_job

    def _begin(self, shared):
        """Check the directory and the settings; return whether the job is new."""
        file, holds_job = self.path / self.file, self.check()
        # Delete the partial files of killed processes.
        for partial in self.path.glob(f".*{PARTIAL}*"):
            if not shared or time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink()
        if holds_job:
            # The settings are only compared. `add` records them when all have been compared, so
            # that a wrong path is not recorded.
            self.recorded = json.loads(file.read_text(encoding="utf-8"))
            self._compare({})
        else:
            self.add({})
        return not holds_job

    def _remove(self):
        for name in (*self.contents(), self.file):
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _flat(settings, prefix=""):
    """Return a dictionary without nested dictionaries: `{"a.b": 1}` for `{"a": {"b": 1}}`."""
    flat = {}
    for name, value in settings.items():
        is_nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if is_nested else {f"{prefix}{name}": value}
    return flat


def _changes(old, new, prefix=""):
    """Yield the name, old value and new value of each setting that differs."""
    for name in new:
        values = old.get(name), new[name]
        if all(isinstance(value, dict) for value in values):
            yield from _changes(*values, f"{prefix}{name}.")
        elif name in old and values[0] != values[1]:
            yield f"{prefix}{name}", *values
