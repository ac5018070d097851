"""The cores and the memory that this process may use, and its standard error."""

import contextlib
import os
import pathlib
import resource
import sys

# File with the memory limit of a container: a number of bytes, or `max` for no limit (cgroup v2).
_MEMORY_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")


def num_cores():
    """Return the number of cores that this process may use; a cluster scheduler may limit it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory():
    """Return the bytes of memory of the machine, or the limit of the container if it is lower."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _MEMORY_LIMIT.read_text().strip() if _MEMORY_LIMIT.exists() else ""
    return min(memory, int(limit)) if limit.isdigit() else memory


def peak_memory():
    """Return the greatest memory that this process has used so far, in bytes.

    On Linux, a program starts with the peak memory of the process that started it.
    """
    # `ru_maxrss` is in bytes on macOS, and in KiB on Linux.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def is_out_of_memory(error):
    """Whether an error of NumPy or of a backend reports a lack of memory."""
    texts = ("oom when allocating", "resource_exhausted", "out of memory", "t allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)


@contextlib.contextmanager
def without_stderr():
    """Silence standard error inside a `with`, including messages of C++ libraries."""
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
