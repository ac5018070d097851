"""Measure a model at one image size and batch size, in a process that `benchmark` starts."""

import math
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from keras_vit.builders import build
from keras_vit.checkpoints import from_checkpoint
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.core.machine import available_memory, peak_memory
from keras_vit.layers.layer import all_layers
from keras_vit.models import for_inference, freeze_blocks
from keras_vit.models.unused_tokens import without_unused_tokens
from keras_vit.models.variants import is_variant
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipe import RECIPES

# Number of classes of new heads, and side of the images for a model that takes images of any size.
NUM_CLASSES, IMAGE_SIZE = 1000, 224


def measure_speed(model, image_size, task, dtype, batch_size, seconds):
    """Return images per second, peak memory and total memory (bytes), image size and dtype."""
    built = build_or_load(model, image_size, task, dtype)
    speed = images_per_second(make_step(built, task, batch_size), batch_size, seconds)
    # The dtype policy that most layers with a kernel have, such as int8_from_float32.
    dtype = statistics.mode(p.dtype_policy.name for p in all_layers(built) if hasattr(p, "kernel"))
    return speed, *memory(), round(math.prod(image_shape(built)[:2]) ** 0.5), dtype


def build_or_load(model, image_size, task, dtype):
    """Build the variant of a name, or load a trained model.

    A trained model keeps quantized kernels only in forward passes and without `dtype`.
    """
    # Without the option, a model from a .keras file keeps its dtype.
    options = {} if dtype is None else {"dtype": dtype}
    if is_variant(model):
        return build(model, num_classes=NUM_CLASSES, image_size=image_size or IMAGE_SIZE, **options)
    if task == "forward" and dtype is None:
        return load_trained(model, image_size)
    num_classes = NUM_CLASSES if task == "training" else None
    return from_checkpoint(model, num_classes, image_size, **options)


def image_shape(built):
    """Return height, width and channels of the images; 224 pixels if a model takes any size."""
    return [side or IMAGE_SIZE for side in built.input_shape[1:]]


def make_step(built, task, batch_size):
    """Return a function of a number of steps, which computes the steps on the same batch."""
    rng = np.random.default_rng(0)
    image = 2 * rng.random((1, *image_shape(built)), dtype="float32") - 1
    labels = rng.integers(NUM_CLASSES, size=batch_size)
    batch = np.repeat(image, batch_size, axis=0), labels
    repeated = tf.data.Dataset.from_tensors(batch).repeat
    if task == "forward":
        copy = for_inference(built)
        return lambda steps: copy.predict(repeated(steps), verbose=0)
    # Train all layers, as `keras-vit train` does.
    freeze_blocks(built, 0)
    trained = without_unused_tokens(built)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile(make_optimizer(RECIPES["pretrain"], trained, 100_000), loss)
    return lambda steps: trained.fit(repeated(steps), shuffle=False, verbose=0)


def images_per_second(step, batch_size, seconds):
    """Return the speed over about `seconds`, at most 100 steps.

    The first step is not measured, because it compiles the model. The other steps are measured
    three times. The shortest time counts, because other processes may slow the model down.
    """

    def timed(steps):
        begin = time.perf_counter()
        step(steps)
        return time.perf_counter() - begin

    step(1)
    steps = min(max(math.ceil(seconds / timed(1)), 1), 100)
    return batch_size * steps / min(timed(steps) for _ in range(3 if steps > 1 else 1))


def memory():
    """Return the peak memory and the total memory, in bytes.

    With an accelerator, both are those of the first accelerator; the total memory of a GPU is
    `None` with TensorFlow, which does not report it. Otherwise return the peak memory of this
    process and the memory of the machine.
    """
    if keras.backend.backend() == "jax":
        import jax

        stats = jax.local_devices()[0].memory_stats()
        if stats:
            return stats["peak_bytes_in_use"], stats.get("bytes_limit")
    elif keras.backend.backend() == "torch":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    elif tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"], None
    return peak_memory(), available_memory()
