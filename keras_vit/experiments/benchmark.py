"""Speed and memory of models against the image size: the measurements of appendix D.5."""

import dataclasses
import itertools
import multiprocessing

from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.core.process import available_memory, num_cores, without_stderr
from keras_vit.models.variants import is_variant

TASKS = ("forward", "training")
# Default image size of variants.
IMAGE_SIZE = 224
BATCH_SIZES = tuple(2**power for power in range(13))
# Linux kills a process when the memory is full.
_KILLED = -9


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
    image_size: int
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
    `pretrain`, on images that are in memory. Each model, size and task is measured in a process of
    its own. Batch sizes are doubled from 1 (on an accelerator: multiplied by 4) until that brings
    no more images per second. The largest that fits is found by trying on an accelerator, in a
    process for each try. On a CPU it follows from the peak memory of those that were measured and
    the memory of the machine.
    Start-up and compilation are not timed.

    Args:
        models: names of variants, paths or checkpoints, as in `keras_vit.training.train`.
        image_sizes: sides of the square images, in pixels; `None` for 224, or the size of a trained
            model.
        batch_sizes: the batch sizes to measure, in rising order, instead of doubled ones.
        tasks: of `"forward"` and `"training"`.
        dtype: dtype policy of the models; that of Keras by default, a `.keras` file has its own.
        seconds: least time of each measurement.
        show: function that gets a line of text on what is being measured.

    Returns:
        An iterator over a `Cost` for each model, image size and task, each measured when it is
        asked for.

    Raises:
        ValueError: if an argument is wrong.
        RuntimeError: if a process fails, other than for lack of memory.

    Reference:
        Appendix D.5 and figure 12 of the ViT paper (arXiv 2010.11929).
    """
    for name, values in (("image_sizes", image_sizes), ("batch_sizes", batch_sizes)):
        for value in () if values is None else values:
            check_integer(name, value, 1)
    image_sizes = (None,) if image_sizes is None else image_sizes
    for task in tasks:
        check_choice("tasks", task, TASKS)
    for name, values in (("models", models), ("image_sizes", image_sizes), ("tasks", tasks)):
        if not values:
            raise ValueError(f"`{name}` must have at least one value. Received: {name}={values}")
    if batch_sizes is not None and (not batch_sizes or list(batch_sizes) != sorted({*batch_sizes})):
        raise ValueError(
            "`batch_sizes` must be in rising order, at least one. "
            f"Received: batch_sizes={batch_sizes}"
        )
    if not seconds > 0:
        raise ValueError(f"`seconds` must be positive. Received: seconds={seconds}")
    _find_models(models)
    cases = [
        (model, IMAGE_SIZE if size is None and is_variant(model) else size, task)
        for model, size, task in itertools.product(models, image_sizes, tasks)
    ]
    return _measure_all(cases, batch_sizes, dtype, seconds, show)


def _find_models(models):
    """Check that the models can be opened, and download checkpoints."""
    # The processes of the measurements import this module, and would import TensorFlow.
    from keras_vit.checkpoints.trained import check_model_path

    for model in models:
        check_model_path(model)


def _measure_all(cases, batch_sizes, dtype, seconds, show):
    """Check all cases if there are several, then yield the `Cost` of each."""
    # A wrong size of the last model is found before the first is measured.
    if len(cases) > 1:
        if show is not None:
            show("checking the models")
        for kind, value in _in_process("check", (cases, dtype)):
            if kind == "error":
                raise ValueError(value)
            if kind == "status" and value not in (0, _KILLED):
                raise RuntimeError(f"Checking the models failed with the status {value}.")
    for model, image_size, task in cases:
        yield measure(model, image_size, task, batch_sizes, dtype, seconds, show)


def measure(model, image_size, task, batch_sizes, dtype, seconds, show=None):
    """Measure a model in one task; returns a `Cost`."""

    def measured(sizes, may_stop, seconds):
        options = model, image_size, task, sizes, may_stop, dtype, seconds
        return _measure_in_process(options, show)

    def fits(batch_size):
        # After a batch that does not fit, a process may not have its memory back.
        try:
            return bool(measured((batch_size,), False, 0.0)["points"])
        except RuntimeError:
            # Not every library says that it lacks memory.
            return False

    found = measured(batch_sizes or BATCH_SIZES, batch_sizes is None, seconds)
    points, failing = found["points"], found.get("failing")
    largest, is_estimated = None, False
    if failing == 1:
        largest = 0
    elif "accelerator" in found:
        fitting, _, peak = points[-1] if points else (0, 0, 0)
        memory = found["accelerator"]
        # In proportion: large batches take more per image than the line through small ones says.
        expected = int(fitting * memory / peak) if memory and peak else None
        largest = find_largest(fits, fitting, failing, expected)
    else:
        largest = estimate_largest_batch(points, available_memory(), failing)
        is_estimated = largest is not None
    return Cost(
        *(model, found["image_size"], task, tuple(points), largest, is_estimated),
        dtype=found.get("dtype"),
    )


def _measure_in_process(options, show):
    """Return the points, the batch size that failed, and what else `run` found, by name."""
    model, image_size, task, sizes = options[:4]
    found, tried = {"points": [], "image_size": image_size}, sizes[0]
    for kind, value in _in_process("run", options):
        if kind == "trying":
            tried = value
            if show is not None:
                show(f"{model}, {found['image_size']} pixels, {task}, batch of {value:,}")
        elif kind == "point":
            found["points"].append(value)
            tried = None
        else:
            found[kind] = value
    if "error" in found:
        raise ValueError(found["error"])
    if found["status"] not in (0, _KILLED):
        raise RuntimeError(f"Measuring {model} ({task}) failed with the status {found['status']}.")
    return {**found, "failing": tried} if found["status"] == _KILLED else found


def _in_process(function_name, options):
    """Yield what a function of `benchmark_process` sends from a process of its own.

    The last pair is `"status"` and the exit status.
    """
    # A fork of a process that has imported nothing: `peak_memory` is its own alone.
    context = multiprocessing.get_context("forkserver")
    multiprocessing.set_forkserver_preload([])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(function_name, theirs, options))
    process.start()
    theirs.close()
    try:
        while True:
            yield ours.recv()
    except EOFError:
        process.join()
    finally:
        process.kill()
    yield "status", process.exitcode


def _run(function_name, connection, options):
    # Each process would print TensorFlow's start-up messages.
    with without_stderr():
        from keras_vit.experiments import benchmark_process
    getattr(benchmark_process, function_name)(connection, options)


def estimate_largest_batch(points, memory, failing=None):
    """Return the batch size whose peak reaches `memory` bytes, on the line through two points.

    The line is that of the two largest batches; `None` if the peak does not rise between them.
    `failing` is a batch size that did not fit, or `None`.

    Example:
    >>> estimate_largest_batch([(1, 2.0, 1100), (2, 2.0, 1200), (4, 2.0, 1400)], 2000)
    10
    """
    if len(points) < 2:
        return None
    (small, _, less), (large, _, more) = points[-2:]
    if more <= less:
        return None
    found = max(large, large + int((memory - more) * (large - small) / (more - less)))
    return found if failing is None else min(found, failing - 1)


def find_largest(fits, fitting, failing=None, expected=None):
    """Return the largest batch size that fits, to an eighth, by trying until the memory is full.

    Sizes near an `expected` one are tried first: 8/8 of it, then 9/8 or 7/8. While they fit, 10/8
    to 15/8 follow. The search is over when a size fits and the next one does not.
    """
    near = [expected * eighths // 8 for eighths in (8, 9, 7, *range(10, 16))] if expected else []
    while failing is None or failing - fitting > max(fitting // 8, 1):
        tried = 2 * fitting if failing is None else (fitting + failing) // 2
        tried = next((n for n in near if fitting < n and (failing is None or n < failing)), tried)
        if fits(tried):
            fitting = tried
        else:
            failing = tried
    return fitting


def device_name():
    """Return the name of the processor, or of the accelerator, in words."""
    from keras_vit.experiments.benchmark_process import accelerator_name

    return accelerator_name() or f"CPU, {num_cores()} cores"
