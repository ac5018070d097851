"""Write parts of a job, with this process or with several processes on this machine.

This module does not import TensorFlow: workers silence the standard error before they import it.
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
        processes: number of processes. Each process loads the model and uses an equal share of the
            cores.
        on_images: function that is called with the number of images predicted since the last call.

    Returns:
        The number of images that cannot be decoded.

    Raises:
        ValueError: if the model cannot be loaded, or an argument does not fit the model.
        OSError: if a file cannot be written, or a process ends. Parts that are written stay valid.
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
                "a process was killed before its part was written, perhaps because memory ran out; "
                "run the same command again to write the missing parts"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return broken


def _start(job, num_threads):
    """Prepare a process of the pool."""
    global _job
    # By default, Ctrl-C would end only the current part, not the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    # Limit the threads of TensorFlow, and of OpenMP in PyTorch, unless the user has set a limit.
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
