"""`RunDir`: a directory of one job, which refuses other settings and other processes."""

import contextlib
import hashlib
import json
import pathlib
import shutil
import time

from keras_vit.core.files import LOCK_FILE, PARTIAL, exclusive_lock, write_text

# A partial file that was not written to for so many seconds is abandoned.
_ABANDONED = 600


class RunDir:
    """A directory that belongs to one job, whose settings are in a file.

    Args:
        path: path of a new or empty directory; or of the job to resume.
        settings: dictionary that JSON can store.
        resume: whether to resume the job in the directory; if there is none, it begins.
        file: name of the file of the settings.
        may_differ: names of settings that may differ when the job is resumed, such as the place
            of files.
        scratch: names of files and directories that do not count as results: a new job that fails
            with no others in the directory is deleted with them.

    Attributes:
        before: dictionary of the settings that a job is resumed with; empty for a new one.

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
        self.before = {}

    @contextlib.contextmanager
    def open(self, shared=False):
        """Begin or resume the job in a `with`.

        Args:
            shared: whether other processes may do other parts of the job at the same time. Then the
                lock is held only at the beginning, and a process that fails removes nothing.

        Raises:
            ValueError: if the directory holds something else or other settings, or another process
                works in it.
            OSError: if it cannot be written.
        """
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.ExitStack() as lock:
                if shared:
                    # Raise the error before waiting for a job that does not share the directory.
                    self.check()
                try:
                    lock.enter_context(exclusive_lock(self.path, wait=shared))
                except TimeoutError as error:
                    raise ValueError(
                        "Only one process may work in a directory. "
                        f"Received: {str(self.path)!r}, where another one does"
                    ) from error
                is_begun = self._begin(shared)
                if shared:
                    lock.close()
                try:
                    yield self
                except BaseException:
                    if is_begun and not shared and {*self.contents()} <= {*self.scratch}:
                        self._remove()
                    raise
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise

    def add(self, settings):
        """Compare further settings with those of a job that is resumed, and record all."""
        file = self.path / self.file
        if file.is_file():
            # Another process of the job may have added some.
            self.before = json.loads(file.read_text(encoding="utf-8"))
        self._compare(settings)
        self.write(self.file, json.dumps({**self.before, **self.settings}, indent=2) + "\n")

    def _compare(self, settings):
        self.settings = json.loads(json.dumps({**self.settings, **settings}))
        changed = [
            f"{name}={new!r} instead of {old!r}"
            for name, old, new in _changes(self.before, self.settings)
            if name not in self.may_differ
        ]
        if changed:
            raise ValueError(
                "A resumed job must have the settings it was begun with. "
                f"Received: {', '.join(changed)}"
            )

    @property
    def identity(self):
        """A digest of the settings so far, without those that may differ."""
        compared = {
            n: value for n, value in _flat(self.settings).items() if n not in self.may_differ
        }
        return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]

    def contents(self):
        """Return the names of the files and directories besides the settings, sorted."""
        names = (path.name for path in self.path.glob("*") if PARTIAL not in path.name)
        return sorted({*names} - {self.file, LOCK_FILE})

    def write(self, name, text):
        """Write a text file whole or not at all, and return its path."""
        write_text(self.path / name, text)
        return self.path / name

    def check(self):
        """Return whether the directory holds the job; `False` if it is new or empty.

        Raises:
            ValueError: if it holds something else.
        """
        holds_job, parts = (self.path / self.file).is_file(), self.contents()
        if (holds_job or parts) and not (holds_job and self.resume):
            found = "a job, which `resume` continues" if holds_job else ", ".join(parts[:3])
            raise ValueError(
                "`workdir` must be a new or empty directory, or that of the job to be resumed. "
                f"Received: workdir={str(self.path)!r}, which holds {found}"
            )
        return holds_job

    def _begin(self, shared):
        """Check the directory and the settings; return whether the job is a new one."""
        file, holds_job = self.path / self.file, self.check()
        # Left by a killed process.
        for partial in self.path.glob(f".*{PARTIAL}*"):
            if not shared or time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink()
        if holds_job:
            # `add` records them after all are compared, so that a wrong path is not recorded.
            self.before = json.loads(file.read_text(encoding="utf-8"))
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
