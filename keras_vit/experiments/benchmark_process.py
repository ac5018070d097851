"""The process in which `benchmark` measures one model, at one image size and batch size."""

import math
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from keras_vit.builders import build
from keras_vit.checkpoints import from_checkpoint
from keras_vit.checkpoints.trained import load_trained
from keras_vit.core.process import is_out_of_memory, peak_memory
from keras_vit.layers.base import parts
from keras_vit.models import freeze_blocks
from keras_vit.models.variants import is_variant
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipes import RECIPES

# Of new heads.
NUM_CLASSES = 1000
IMAGE_SIZE = 224
_MOST_STEPS = 100


def measure(model, image_size, task, dtype, batch_size, seconds):
    """Return images per second, peak memory and facts of a batch; `None` if it does not fit."""
    try:
        built = build_or_load(model, image_size, task, dtype)
        speed = images_per_second(make_step(built, task, batch_size), batch_size, seconds)
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise
    # That of most layers, as int8_from_float32.
    policies = [part.dtype_policy.name for part in parts(built) if hasattr(part, "kernel")]
    peak = accelerator_peak()
    facts = {"image_size": built.input_shape[1], "dtype": statistics.mode(policies)}
    return speed, peak or peak_memory(), {**facts, "is_accelerator": peak is not None}


def build_or_load(model, image_size, task, dtype):
    """Return a model of square images: a new one by its name, or a trained one.

    A trained model keeps its kernels, int8 ones too, unless it is trained or gets a dtype.
    """
    if is_variant(model):
        size = image_size or IMAGE_SIZE
        return build(model, num_classes=NUM_CLASSES, image_size=size, dtype=dtype)
    if task == "forward" and dtype is None:
        built = load_trained(model, image_size)
    else:
        # A .keras file has its own dtype.
        options = {} if dtype is None else {"dtype": dtype}
        built = from_checkpoint(
            model, None if task == "forward" else NUM_CLASSES, image_size, **options
        )
    height, width = built.input_shape[1:3]
    if height is None or height != width:
        raise ValueError(
            "`image_sizes` must be given for a model of any size, or of images that are not square."
            f" Received: model={model!r} for images of {height} x {width} pixels"
        )
    return built


def make_step(built, task, batch_size):
    """Return a function of a number of steps, which computes them on one batch."""
    rng = np.random.default_rng(0)
    images = 2 * rng.random((1, *built.input_shape[1:]), dtype="float32") - 1
    images = np.repeat(images, batch_size, axis=0)
    if task == "forward":
        repeated = tf.data.Dataset.from_tensors((images,))
        return lambda steps: built.predict(repeated.repeat(steps), verbose=0)
    # All layers, as by `keras-vit train`.
    freeze_blocks(built, 0)
    built.compile(
        optimizer=make_optimizer(RECIPES["pretrain"], built, 100_000),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    repeated = tf.data.Dataset.from_tensors((images, rng.integers(NUM_CLASSES, size=batch_size)))
    return lambda steps: built.fit(repeated.repeat(steps), shuffle=False, verbose=0)


def images_per_second(step, batch_size, seconds):
    """Return the speed of steps, as many as take some seconds.

    The first call compiles and is not counted. The fastest of several runs counts: others were held
    up by something else.
    """

    def timed(steps):
        begin = time.perf_counter()
        step(steps)
        return time.perf_counter() - begin

    step(1)
    once = timed(1)
    steps = min(max(math.ceil(seconds / once), 1), _MOST_STEPS)
    return batch_size * steps / min(timed(steps) for _ in range(3 if once < seconds else 1))


def accelerator_peak():
    """Return the peak memory of the first accelerator, in bytes, or `None` on a CPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    if backend == "torch":
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    if tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return None
