"""The processor cores that this process may use."""

import os


def num_cores():
    """Return their number, which schedulers of clusters limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
