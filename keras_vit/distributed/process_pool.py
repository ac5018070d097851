"""Write parts of a job with this process, or with several processes on this machine.

This module imports little: a worker silences the standard error before TensorFlow is imported.
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
        processes: number of processes; each loads the model and uses its share of the cores.
        on_images: function that is called with the number of images predicted since the last call.

    Returns:
        The number of images that cannot be decoded.

    Raises:
        ValueError: if the model cannot be loaded, or an argument does not fit it.
        OSError: if a file cannot be written or a process ends; parts written before are kept.
    """
    if processes == 1:
        return sum(job.write(part, on_images)[1] for part in parts)
    arguments = pickle.dumps(job), str(max(num_cores() // processes, 1))
    context, broken = multiprocessing.get_context("spawn"), 0
    with concurrent.futures.ProcessPoolExecutor(processes, context, _start, arguments) as pool:
        try:
            for done in concurrent.futures.as_completed(pool.submit(_write, n) for n in parts):
                images, num_broken = done.result()
                broken += num_broken
                if on_images is not None:
                    on_images(images)
        except concurrent.futures.process.BrokenProcessPool as error:
            raise OSError(
                "a process ended before its part was written: it was killed, perhaps because it "
                "ran out of memory; the same command writes the parts that are missing"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return broken


def _start(job, num_threads):
    """Prepare a process of the pool."""
    global _job
    # Let Ctrl-C end the process, not only the current part.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    # Number of threads of TensorFlow, and of OpenMP for PyTorch, unless the user has set it.
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, num_threads)
    with without_stderr():
        _job = pickle.loads(job)


def _write(part):
    return _job.write(part)


def _end_with_the_parent():
    # A killed parent cannot end its pool, so each worker waits for the parent and ends itself.
    multiprocessing.parent_process().join()
    os._exit(1)
