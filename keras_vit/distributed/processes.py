"""The missing parts of a job, written by this process or by several of this machine."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle

from keras_vit.core.process import num_cores
from keras_vit.distributed import worker
from keras_vit.distributed.batch import PartWriter

# TensorFlow's own, and OpenMP's for PyTorch.
_THREADS = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
_POLL_SECONDS = 0.5


def write_parts(parts, missing, processes=1, on_images=None):
    """Write the missing parts of a job.

    Args:
        parts: `Parts` of the job.
        missing: list of the numbers of the parts.
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
        return sum(parts.write(part, on_images) for part in missing)
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    writer = pickle.dumps(PartWriter(parts.job, parts.digest))
    arguments = (processes, context, worker.start, (writer, counter))
    with (
        _fewer_threads(processes),
        concurrent.futures.ProcessPoolExecutor(*arguments) as pool,
    ):
        futures = [pool.submit(worker.write, part) for part in missing]
        try:
            return _wait(futures, counter, on_images)
        except concurrent.futures.process.BrokenProcessPool as error:
            raise OSError(
                "a process ended before its part was written: it was killed, perhaps for its "
                "memory; the same command writes the parts that are missing"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _wait(futures, counter, on_images):
    """Return the sum of the results, and report the images that are counted meanwhile."""
    seen, broken, pending = 0, 0, set(futures)
    while pending:
        done, pending = concurrent.futures.wait(
            pending, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
        )
        now = counter.value
        if on_images is not None:
            on_images(now - seen)
        seen = now
        broken += sum(future.result() for future in done)
    return broken


@contextlib.contextmanager
def _fewer_threads(processes):
    """Let processes that are started meanwhile share the cores, unless the user decided."""
    mine = [name for name in _THREADS if name not in os.environ]
    os.environ |= dict.fromkeys(mine, str(max(num_cores() // processes, 1)))
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]
