"""The process in which `benchmark` measures one model, at one image size, in one task."""

import collections
import functools
import math
import time

import keras
import numpy as np

from keras_vit.builders import build
from keras_vit.checkpoints import from_checkpoint
from keras_vit.checkpoints.trained import load_trained
from keras_vit.core.process import is_out_of_memory, peak_memory
from keras_vit.layers.base import parts
from keras_vit.models import freeze_blocks
from keras_vit.models.variants import find_variant, is_variant
from keras_vit.models.vit import variable_shapes
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipes import RECIPES

# Number of classes of new heads.
NUM_CLASSES = 1000
# Batches are enlarged until two in a row are less than this times as fast as the fastest before.
_GAIN = 1.03
# Seconds; no larger batch is tried after a step that takes longer.
_LONGEST_STEP = 20.0
_MOST_STEPS = 100
_RUNS = 3


class Repeated(keras.utils.PyDataset):
    """One batch, several times."""

    def __init__(self, batch, steps):
        super().__init__()
        self.batch, self.steps = batch, steps

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        return self.batch


def run(connection, options):
    """Send `(kind, value)` pairs of what is measured; runs in a process of its own.

    The kinds are `"image_size"`, `"dtype"`, `"accelerator"` for its memory in bytes if there is
    one, `"trying"` for a batch size that is to be tried, `"point"` for each that was measured,
    `"failing"` for one that does not fit, and `"error"`.
    """
    model, image_size, task, batch_sizes, may_stop, dtype, seconds = options
    try:
        built = build_or_load(model, image_size, task, dtype)
    except ValueError as error:
        connection.send(("error", str(error)))
        return
    connection.send(("image_size", built.input_shape[1]))
    connection.send(("dtype", dtype_of(built)))
    step = make_step(built, task)
    best, without_gain = 0, 0
    peak, limit = accelerator_memory()
    on_accelerator = peak is not None
    if on_accelerator:
        connection.send(("accelerator", limit))
    # Each batch size is compiled, for half a minute on a GPU.
    for batch_size in batch_sizes[::2] if may_stop and on_accelerator else batch_sizes:
        connection.send(("trying", batch_size))
        try:
            speed, longest = time_batch(step, batch_size, seconds)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            connection.send(("failing", batch_size))
            break
        memory = accelerator_memory()[0] or peak_memory()
        connection.send(("point", (batch_size, speed, memory)))
        without_gain = 0 if speed > _GAIN * best else without_gain + 1
        best = max(best, speed)
        if may_stop and (without_gain == 2 or longest > _LONGEST_STEP):
            break


def check(connection, options):
    """Send an `"error"` for the first case, a model, its size and a task, that is wrong."""
    (cases, dtype), checked = options, set()
    for model, image_size, task in cases:
        # Sizes do not depend on tasks.
        pairs = {(model, image_size), (model, task)}
        if pairs <= checked:
            continue
        checked |= pairs
        try:
            if is_variant(model):
                sizes = {"num_classes": NUM_CLASSES, "image_size": image_size}
                variable_shapes(find_variant(model).replace(**sizes))
            else:
                build_or_load(model, image_size, task, dtype)
        except Exception as error:
            if is_out_of_memory(error):
                continue
            if not isinstance(error, ValueError):
                raise
            size = "its own size" if image_size is None else f"{image_size} pixels"
            connection.send(("error", f"{model} ({task}) at {size}: {error}"))
            return


def build_or_load(model, image_size, task, dtype):
    """Return a model of square images: a new one by its name, or a trained one.

    A trained model keeps its kernels, int8 ones too, unless it is trained or gets a dtype. One of
    any size is measured at the size of its positions.
    """
    if is_variant(model):
        return build(model, num_classes=NUM_CLASSES, image_size=image_size, dtype=dtype)
    built = None
    if task == "forward" and dtype is None:
        built = load_trained(model, image_size)
    if built is None or None in built.input_shape[1:]:
        num_classes = None if task == "forward" else NUM_CLASSES
        # A .keras file has its own dtype.
        options = {} if dtype is None else {"dtype": dtype}
        built = from_checkpoint(model, num_classes, image_size, **options)
    if task == "training":
        # All layers, as by `keras-vit train`.
        freeze_blocks(built, 0)
    height, width = built.input_shape[1:3]
    if height != width:
        raise ValueError(
            "`image_sizes` (`--image-sizes`) must be given for a model whose images are not "
            f"square. Received: model={model!r} for images of {height} x {width} pixels"
        )
    return built


def dtype_of(model):
    """Return the dtype policy of most of a model's layers with kernels, as int8_from_float32."""
    kernels = [part for part in parts(model) if hasattr(part, "kernel")]
    names = collections.Counter(part.dtype_policy.name for part in kernels)
    return names.most_common(1)[0][0]


def make_step(built, task):
    """Return a function of a batch size and a number of steps, which computes them."""
    if task == "training":
        built.compile(
            optimizer=make_optimizer(RECIPES["pretrain"], built, 100_000),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    rng = np.random.default_rng(0)

    # The steps of a batch size have the same images: drawing them is not part of the time.
    @functools.lru_cache(maxsize=1)
    def batch(size):
        images = 2 * rng.random((1, *built.input_shape[1:]), dtype="float32") - 1
        images = np.repeat(images, size, axis=0)
        return (images,) if task == "forward" else (images, rng.integers(NUM_CLASSES, size=size))

    def step(batch_size, steps):
        repeated = Repeated(batch(batch_size), steps)
        if task == "forward":
            outputs = keras.tree.flatten(built.predict(repeated, verbose=0))
            done = len(outputs[0]) // batch_size
        else:
            before = int(built.optimizer.iterations)
            built.fit(repeated, epochs=1, verbose=0)
            done = int(built.optimizer.iterations) - before
        if done != steps:
            # Keras ends an epoch early if the thread that reads the batches lacks memory.
            raise MemoryError(f"{done} of {steps} steps were computed")

    return step


def time_batch(step, batch_size, seconds):
    """Return the images per second of a batch size, and the seconds of a step.

    The first call compiles and is not counted. The fastest of several runs counts: others were held
    up by something else.
    """
    step(batch_size, 1)
    once = _timed(step, batch_size, 1)
    steps = min(max(math.ceil(seconds / once), 1), _MOST_STEPS)
    runs = _RUNS if once < seconds else 1
    fastest = min(_timed(step, batch_size, steps) for _ in range(runs)) / steps
    return batch_size / fastest, once


def _timed(step, batch_size, steps):
    begin = time.perf_counter()
    step(batch_size, steps)
    return time.perf_counter() - begin


def accelerator_memory():
    """Return the peak and the limit of the memory of the first accelerator, in bytes.

    Both are `None` on a CPU; the limit is if it is unknown.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        stats = jax.local_devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use"), stats.get("bytes_limit")
    if backend == "torch":
        import torch

        if not torch.cuda.is_available():
            return None, None
        return torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None, None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"], None


def accelerator_name():
    """Return the name of the first accelerator, or `None` on a CPU."""
    if accelerator_memory()[0] is None:
        return None
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name()
    if keras.backend.backend() == "jax":
        import jax

        return jax.devices()[0].device_kind
    return keras.distribution.list_devices("gpu")[0]
