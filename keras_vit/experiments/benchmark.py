"""Measure the speed and the memory of models by image size, as in appendix D.5 of the paper."""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
from concurrent.futures.process import BrokenProcessPool

from keras_vit.core.machine import is_out_of_memory, without_stderr

TASKS = ("forward", "training")
BATCH_SIZES = tuple(4**power for power in range(7))
# The batch size is increased until the images per second rise by less than this factor, or until a
# step takes more than `_LONGEST_STEP` seconds.
_GAIN = 1.03
_LONGEST_STEP = 20.0


@dataclasses.dataclass(frozen=True)
class Cost:
    """The speed and memory of a model on this machine, for one task and one image size.

    Args:
        model: name of the variant, or the path or name of a trained model.
        task: `"forward"` or `"training"`.
        image_size: side of the images in pixels, or the square root of their area if they are not
            square; `None` if it is not known, because a trained model does not fit into memory.
        dtype: name of the model's dtype policy; `None` if the model does not fit into memory.
        points: `(batch size, images per second, peak memory in bytes)` of each batch size.
        largest_batch: estimate of the largest batch size that fits into memory; 0 if one image does
            not fit; `None` if the size cannot be estimated.
    """

    model: str
    task: str
    image_size: int | None
    dtype: str | None
    points: tuple[tuple[int, float, int], ...]
    largest_batch: int | None

    @property
    def best(self):
        """The element of `points` with the most images per second; `None` if no batch fits."""
        return max(self.points, key=lambda point: point[1], default=None)


def benchmark(models, image_sizes=None, batch_sizes=None, tasks=TASKS, dtype=None, seconds=2.0):
    """Measure the speed and memory of models in forward passes and in training.

    A forward pass is a step of `for_inference(model).predict`. A training step is a step of `fit`,
    as in `train`, with the optimizer of the recipe `pretrain`. The images are in memory. Each batch
    size is measured in a separate process. The batch size is multiplied by 4 until the images per
    second no longer rise or the memory is full. The largest batch size that fits is estimated from
    the peak memory of smaller batches and the memory of the accelerator or the machine. Start-up
    and compilation are not timed.

    Args:
        models: names of variants, paths or checkpoints, as in `keras_vit.training.train`.
        image_sizes: sides of the square images, in pixels; `None` for 224, or for the image size of
            a trained model.
        batch_sizes: the batch sizes to measure, in rising order; `None` for 1, 4, 16 and so on.
        tasks: `"forward"`, `"training"` or both.
        dtype: dtype policy of the models; `None` for Keras's default, or for the policy of a
            `.keras` file.
        seconds: approximate duration of a measurement, which has at most 100 steps.

    Returns:
        An iterator of `Cost`, one per model, image size and task. A `Cost` is measured when the
        iterator is asked for it.

    Raises:
        ValueError: if a model does not exist, or cannot have the image size.

    Reference:
        Appendix D.5 and figure 12 of the ViT paper (arXiv 2010.11929).
    """
    cases = itertools.product(models, image_sizes or (None,), tasks)
    return (_cost(*case, batch_sizes, dtype, seconds) for case in cases)


def _cost(model, image_size, task, batch_sizes, dtype, seconds):
    points, failing, memory, size_and_dtype = [], None, None, (image_size, dtype)
    for size in batch_sizes or BATCH_SIZES:
        try:
            measured = _in_process(model, image_size, task, dtype, size, seconds)
        except Exception as error:
            # When the memory is full, Linux kills the process, or libraries raise errors of many
            # types. So if a smaller batch was computed before, any error means a full memory.
            if not (points or isinstance(error, BrokenProcessPool) or is_out_of_memory(error)):
                raise
            failing = size
            break
        speed, peak, memory, *size_and_dtype = measured
        is_flat = speed <= _GAIN * max((point[1] for point in points), default=0)
        points.append((size, speed, peak))
        if batch_sizes is None and (is_flat or size / speed > _LONGEST_STEP):
            break
    largest = 0 if failing == 1 else estimate_largest_batch(points, memory, failing)
    return Cost(model, task, *size_and_dtype, tuple(points), largest)


def _in_process(*arguments):
    """Return the result of `benchmark_process.measure_speed`, called in a separate process."""
    # Fork from a process without imported modules: their memory would count as peak memory.
    multiprocessing.set_forkserver_preload([])
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        return executor.submit(_measure, *arguments).result()


def _measure(*arguments):
    # Hide the start-up messages of TensorFlow, which each of the processes would print.
    with without_stderr():
        from keras_vit.experiments import benchmark_process
    return benchmark_process.measure_speed(*arguments)


def estimate_largest_batch(points, memory, failing=None):
    """Return the batch size whose peak memory reaches `memory` bytes.

    The peak memory is extrapolated linearly from the two largest batches. Return `None` if it does
    not rise between these two, or if `memory` is `None`. `failing` is a batch size that did not fit
    into memory, or `None`.

    Example:
    >>> estimate_largest_batch([(1, 2.0, 1100), (2, 2.0, 1200), (4, 2.0, 1400)], 2000)
    10
    """
    if memory is None or len(points) < 2 or points[-1][2] <= points[-2][2]:
        return None
    (small, _, less), (large, _, more) = points[-2:]
    largest = max(large, large + int((memory - more) * (large - small) / (more - less)))
    return largest if failing is None else min(largest, failing - 1)
