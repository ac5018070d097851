"""Speed and memory of models against the image size: the measurements of appendix D.5."""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
from concurrent.futures.process import BrokenProcessPool

from keras_vit.core.machine import is_out_of_memory, without_stderr

TASKS = ("forward", "training")
BATCH_SIZES = tuple(4**power for power in range(7))
# Batches are enlarged until one is less than this times as fast as the fastest before.
_GAIN = 1.03
# Seconds; no larger batch is tried after one that takes longer.
_LONGEST_STEP = 20.0


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a model costs on this machine at one image size, in one task.

    Args:
        model: name of the variant, or the path or name of a trained model.
        task: `"forward"` or `"training"`.
        image_size: side of the images in pixels, or the root of their area if they are not square;
            `None` if a trained model does not fit into the memory.
        dtype: name of the model's dtype policy; `None` if it does not fit into the memory.
        points: `(batch size, images per second, peak memory in bytes)` of each batch size.
        largest_batch: estimate of the largest batch size that fits into the memory, 0 if one image
            does not; `None` if it is not known.
    """

    model: str
    task: str
    image_size: int | None
    dtype: str | None
    points: tuple[tuple[int, float, int], ...]
    largest_batch: int | None

    @property
    def best(self):
        """The point with the most images per second; `None` if no batch fits."""
        return max(self.points, key=lambda point: point[1], default=None)


def benchmark(models, image_sizes=None, batch_sizes=None, tasks=TASKS, dtype=None, seconds=2.0):
    """Measure the speed and the memory of models, forward and in training.

    A forward pass is `model.predict`, training is `model.fit` with the optimizer of the recipe
    `pretrain`, on images that are in memory. Each batch size is measured in a process of its own.
    Batch sizes are multiplied by 4 until that brings no more images per second, or there is no more
    memory. The largest that fits follows from their peak memory, and from the memory of the
    accelerator or the machine. Start-up and compilation are not timed.

    Args:
        models: names of variants, paths or checkpoints, as in `keras_vit.training.train`.
        image_sizes: sides of the square images, in pixels; `None` for 224, or the size of a trained
            model.
        batch_sizes: the batch sizes to measure, in rising order; `None` to multiply by 4.
        tasks: of `"forward"` and `"training"`.
        dtype: dtype policy of the models; that of Keras by default, a `.keras` file has its own.
        seconds: time that a measurement takes; it has at most 100 steps.

    Returns:
        An iterator over a `Cost` for each model, image size and task, each measured when it is
        asked for.

    Raises:
        ValueError: if there is no such model, or it cannot have the image size.

    Reference:
        Appendix D.5 and figure 12 of the ViT paper (arXiv 2010.11929).
    """
    cases = itertools.product(models, image_sizes or (None,), tasks)
    return (_cost(*case, batch_sizes, dtype, seconds) for case in cases)


def _cost(model, image_size, task, batch_sizes, dtype, seconds):
    points, failing, memory, own = [], None, None, (image_size, dtype)
    for size in batch_sizes or BATCH_SIZES:
        try:
            found = _in_process(model, image_size, task, dtype, size, seconds)
        except Exception as error:
            # Linux kills a process for a lack of memory, and some libraries raise other errors:
            # after a smaller batch that worked, any error counts as one.
            if not (points or isinstance(error, BrokenProcessPool) or is_out_of_memory(error)):
                raise
            failing = size
            break
        speed, peak, memory, *own = found
        is_flat = speed <= _GAIN * max((point[1] for point in points), default=0)
        points.append((size, speed, peak))
        if batch_sizes is None and (is_flat or size / speed > _LONGEST_STEP):
            break
    largest = 0 if failing == 1 else estimate_largest_batch(points, memory, failing)
    return Cost(model, task, *own, tuple(points), largest)


def _in_process(*arguments):
    """Return what `benchmark_process.measure` does in a process of its own."""
    # A fork of a process that has imported nothing: `peak_memory` is its own alone.
    multiprocessing.set_forkserver_preload([])
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        return executor.submit(_measure, *arguments).result()


def _measure(*arguments):
    # Each process would print TensorFlow's start-up messages.
    with without_stderr():
        from keras_vit.experiments import benchmark_process
    return benchmark_process.measure_speed(*arguments)


def estimate_largest_batch(points, memory, failing=None):
    """Return the batch size whose peak reaches `memory` bytes, on the line through two points.

    The line is that of the two largest batches; `None` if the peak does not rise between them, or
    the memory is not known. `failing` is a batch size that did not fit, or `None`.

    Example:
    >>> estimate_largest_batch([(1, 2.0, 1100), (2, 2.0, 1200), (4, 2.0, 1400)], 2000)
    10
    """
    if memory is None or len(points) < 2 or points[-1][2] <= points[-2][2]:
        return None
    (small, _, less), (large, _, more) = points[-2:]
    found = max(large, large + int((memory - more) * (large - small) / (more - less)))
    return found if failing is None else min(found, failing - 1)
