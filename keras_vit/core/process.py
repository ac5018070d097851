"""The cores that this process may use, and its standard error."""

import contextlib
import os
import sys


def num_cores():
    """Return their number, which schedulers of clusters limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def without_stderr():
    """Close the standard error inside a `with`, also for messages that Python does not write."""
    # Some of TensorFlow's are written before it reads this.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
