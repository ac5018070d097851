"""Parts of a job, written by this process or by several of this machine.

This module imports little, so that a worker can silence the standard error before TensorFlow.
"""

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import threading

from keras_vit.core.machine import num_cores, without_stderr


def write_parts(job, parts, processes=1, on_images=None):
    """Write parts of a job.

    Args:
        job: a `keras_vit.distributed.batch.Job`.
        parts: list of the numbers of the parts.
        processes: number of processes, each of which loads the model and takes its share of the
            processor's cores.
        on_images: function that is called with a number of images whenever so many are predicted.

    Returns:
        The number of images that cannot be decoded.

    Raises:
        ValueError: if the model cannot be loaded, or an argument does not fit it.
        OSError: if a file cannot be written or a process ends; all other parts stay.
    """
    if processes == 1:
        return sum(job.write(part, on_images)[1] for part in parts)
    arguments = pickle.dumps(job), str(max(num_cores() // processes, 1))
    context, broken = multiprocessing.get_context("spawn"), 0
    with concurrent.futures.ProcessPoolExecutor(processes, context, _start, arguments) as pool:
        try:
            for done in concurrent.futures.as_completed(pool.submit(_write, n) for n in parts):
                images, found = done.result()
                broken += found
                if on_images is not None:
                    on_images(images)
        except concurrent.futures.process.BrokenProcessPool as error:
            raise OSError(
                "a process ended before its part was written: it was killed, perhaps for its "
                "memory; the same command writes the parts that are missing"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return broken


def _start(job, num_threads):
    """Prepare a process of the pool."""
    global _job
    # Ctrl-C ends the process, and not only the part that it writes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    # TensorFlow's own, and OpenMP's for PyTorch, unless the user decided.
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, num_threads)
    with without_stderr():
        _job = pickle.loads(job)


def _write(part):
    return _job.write(part)


def _end_with_the_parent():
    # A process that is killed cannot end its pool.
    multiprocessing.parent_process().join()
    os._exit(1)
