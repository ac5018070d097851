"""Speed and memory of models against the image size: the measurements of appendix D.5."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
from concurrent.futures.process import BrokenProcessPool

from keras_vit.core.process import available_memory, without_stderr

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
        image_size: side of the square images, in pixels; `None` if a trained model does not fit
            into the memory.
        task: `"forward"` or `"training"`.
        points: `(batch size, images per second, peak memory in bytes)` of each batch size.
        largest_batch: largest batch size that fits into the memory, 0 if none does; `None` if it
            is not known.
        is_estimated: whether that follows from the memory of smaller ones.
        dtype: name of the model's dtype policy; `None` if it does not fit into the memory.
    """

    model: str
    image_size: int | None
    task: str
    points: tuple[tuple[int, float, int], ...]
    largest_batch: int | None
    is_estimated: bool
    dtype: str | None = None

    @property
    def best(self):
        """The point with the most images per second; `None` if no batch fits."""
        return max(self.points, key=lambda point: point[1], default=None)


def benchmark(
    models, image_sizes=None, batch_sizes=None, tasks=TASKS, dtype=None, seconds=2.0, show=None
):
    """Measure the speed and the memory of models, forward and in training.

    A forward pass is `model.predict`, training is `model.fit` with the optimizer of the recipe
    `pretrain`, on images that are in memory. Each batch size is measured in a process of its own.
    Batch sizes are multiplied by 4 until that brings no more images per second. The largest that
    fits is found by trying on an accelerator. On a CPU it follows from the peak memory of those
    that were measured and the memory of the machine. Start-up and compilation are not timed.

    Args:
        models: names of variants, paths or checkpoints, as in `keras_vit.training.train`.
        image_sizes: sides of the square images, in pixels; `None` for 224, or the size of a trained
            model.
        batch_sizes: the batch sizes to measure, in rising order, instead of these.
        tasks: of `"forward"` and `"training"`.
        dtype: dtype policy of the models; that of Keras by default, a `.keras` file has its own.
        seconds: least time of each measurement.
        show: function that gets a line of text on what is being measured.

    Returns:
        An iterator over a `Cost` for each model, image size and task, each measured when it is
        asked for.

    Raises:
        ValueError: if there is no such model, or it cannot have the image size.

    Reference:
        Appendix D.5 and figure 12 of the ViT paper (arXiv 2010.11929).
    """
    # The processes of the measurements import this module, and would import TensorFlow.
    from keras_vit.checkpoints.trained import check_model_path

    for model in models:
        check_model_path(model)
    options = batch_sizes, dtype, seconds, show or (lambda text: None)
    cases = itertools.product(models, image_sizes or (None,), tasks)
    return (_cost(*case, *options) for case in cases)


def _cost(model, image_size, task, batch_sizes, dtype, seconds, show):
    def measured(batch_size, seconds):
        show(f"{model}, {task}, batch of {batch_size:,}")
        return _in_process(model, image_size, task, dtype, batch_size, seconds)

    def fits(batch_size):
        # Not every library says that it lacks memory.
        with contextlib.suppress(Exception):
            return measured(batch_size, 0.0) is not None
        return False

    points, failing, found = [], None, {}
    for size in batch_sizes or BATCH_SIZES:
        result = measured(size, seconds)
        if result is None:
            failing = size
            break
        speed, peak, found = result
        is_flat = speed <= _GAIN * max((point[1] for point in points), default=0)
        points.append((size, speed, peak))
        if batch_sizes is None and (is_flat or size / speed > _LONGEST_STEP):
            break
    is_estimated = not found.get("is_accelerator")
    if not is_estimated:
        largest = find_largest(fits, points[-1][0], failing)
    else:
        largest = 0 if failing == 1 else estimate_largest_batch(points, available_memory(), failing)
    size, dtype = found.get("image_size", image_size), found.get("dtype")
    return Cost(model, size, task, tuple(points), largest, is_estimated, dtype)


def _in_process(*arguments):
    """Return what `benchmark_process.measure` does in a process of its own.

    `None` stands for a lack of memory, for which Linux kills a process.
    """
    # A fork of a process that has imported nothing: `peak_memory` is its own alone.
    multiprocessing.set_forkserver_preload([])
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        try:
            return executor.submit(_measure, *arguments).result()
        except BrokenProcessPool:
            return None


def _measure(*arguments):
    # Each process would print TensorFlow's start-up messages.
    with without_stderr():
        from keras_vit.experiments import benchmark_process
    return benchmark_process.measure(*arguments)


def estimate_largest_batch(points, memory, failing=None):
    """Return the batch size whose peak reaches `memory` bytes, on the line through two points.

    The line is that of the two largest batches; `None` if the peak does not rise between them.
    `failing` is a batch size that did not fit, or `None`.

    Example:
    >>> estimate_largest_batch([(1, 2.0, 1100), (2, 2.0, 1200), (4, 2.0, 1400)], 2000)
    10
    """
    if len(points) < 2 or points[-1][2] <= points[-2][2]:
        return None
    (small, _, less), (large, _, more) = points[-2:]
    found = max(large, large + int((memory - more) * (large - small) / (more - less)))
    return found if failing is None else min(found, failing - 1)


def find_largest(fits, fitting, failing=None):
    """Return the largest batch size that fits, to an eighth, by trying until the memory is full."""
    while failing is None or fitting < failing * 7 // 8:
        tried = 2 * fitting if failing is None else (fitting + failing) // 2
        if fits(tried):
            fitting = tried
        else:
            failing = tried
    return fitting
