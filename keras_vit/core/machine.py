"""The cores and the memory that this process may use, and its standard error."""

import contextlib
import os
import pathlib
import resource
import sys

# Limit of a container, in bytes or `max` (cgroup v2).
_MEMORY_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")


def num_cores():
    """Return the number of cores that this process may use, which cluster schedulers limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory():
    """Return the memory of the machine or, if it is less, of the container, in bytes."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _MEMORY_LIMIT.read_text().strip() if _MEMORY_LIMIT.exists() else ""
    return min(memory, int(limit)) if limit.isdigit() else memory


def peak_memory():
    """Return the greatest memory that this process has used so far, in bytes.

    On Linux, a program that was started by another one also counts the memory of the other.
    """
    # macOS counts in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def is_out_of_memory(error):
    """Whether an error of NumPy or of a backend reports a lack of memory."""
    texts = ("oom when allocating", "resource_exhausted", "out of memory", "t allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)


@contextlib.contextmanager
def without_stderr():
    """Silence the standard error inside a `with`, also for messages of C++ libraries."""
    # TensorFlow reads this when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with pathlib.Path(os.devnull).open("w") as silence:
        os.dup2(silence.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
