"""What a process of a pool does; only light imports, so that the others can be quiet."""

import multiprocessing
import os
import pickle
import signal
import threading

from keras_vit.core.process import without_stderr


def start(writer, counter):
    """Prepare a process to write parts.

    Args:
        writer: a pickled `PartWriter`.
        counter: shared number of the images that all processes have predicted.
    """
    global _writer, _counter
    # Ctrl-C ends the process, and not only the part that it writes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with without_stderr():
        _writer, _counter = pickle.loads(writer), counter


def write(part):
    """Write a part; return the number of images that are broken."""

    def count(images):
        with _counter.get_lock():
            _counter.value += images

    _, broken = _writer(part, count)
    return broken


def _end_with_the_parent():
    # A process that is killed cannot end its pool.
    multiprocessing.parent_process().join()
    os._exit(1)
