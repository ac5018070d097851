"""Memory of the machine, and the time of a training step."""

import dataclasses
import math
import shutil
import subprocess
import time

import keras
import numpy as np
import psutil

from keras_vit.core.process import available_memory
from keras_vit.models.options import is_resnet
from keras_vit.training.optimizers import make_optimizer


def has_accelerator():
    """Return whether the backend computes on a GPU or a TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return not all(device.startswith("cpu") for device in keras.distribution.list_devices())


def usable_memory():
    """Return the bytes of the first GPU, or without one those that the machine can still give.

    The free bytes of a GPU say little, as backends reserve most of it when they start.
    """
    if has_accelerator() and shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        if found and found[0].isdigit():
            return int(found[0]) * 2**20
    return min(available_memory(), psutil.virtual_memory().available)


def bytes_per_image(options):
    """Estimate the bytes that training keeps for one image, from the options of a model.

    It is an upper estimate for the three backends, without rematerialization.
    """
    height, width = options.image_size
    if is_resnet(options):
        stages, filters = options.stages, options.width
    else:
        stages, filters = options.resnet_stages or (), options.resnet_width
    # An image of 224 pixels needs about 200 MB in a R50x1, of 16 units.
    maps = 200e6 * sum(stages) / 16 * filters / 64 * height * width / 224**2
    if is_resnet(options):
        return maps
    tokens, width = math.prod(options.grid) + 1, options.embedding_dim
    layer = tokens * (9 * width + 2 * options.mlp_dim) + 2 * options.num_heads * tokens**2
    return maps + 4 * 2 * options.depth * layer


def seconds_per_image(recipe, model, batch_size, steps=3):
    """Measure the time of a training step, per image.

    The model is trained on noise, so pass a copy. The first step, in which the backend compiles, is
    not counted.
    """
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch_size, *model.input_shape[1:])).astype("float32")
    labels = np.arange(batch_size) % model.output_shape[-1]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # An accumulated batch would update only every few steps.
    recipe = dataclasses.replace(recipe, accumulation_steps=1)
    model.compile(make_optimizer(recipe, model, 10**9), loss)
    model.fit(images, labels, batch_size, verbose=0)
    repeated = np.concatenate([images] * steps), np.concatenate([labels] * steps)
    start = time.perf_counter()
    model.fit(*repeated, batch_size, verbose=0)
    return (time.perf_counter() - start) / (steps * batch_size)
