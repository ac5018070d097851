"""`auto_recipe` chooses the settings of a training for a dataset, a model and this machine."""

import dataclasses
import logging
import math
import os
import time
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.checkpoints.named_models import check_model_path
from keras_vit.checkpoints.run_files import find_model
from keras_vit.core.arguments import is_number
from keras_vit.core.machine import is_out_of_memory
from keras_vit.data.images.decoding import declared_size
from keras_vit.data.pipeline import load
from keras_vit.models import find_variant
from keras_vit.models.options import DEFAULT_IMAGE_SIZE, Options, is_resnet
from keras_vit.models.unused_tokens import without_unused_tokens
from keras_vit.models.variants import is_variant
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipe import RECIPES, Recipe
from keras_vit.training.starting_model import make_model

# From an upper limit of the number of training images to the number of images to train on, with
# repetitions: 500, 10,000 or 20,000 steps of 512 images (`bit_hyperrule.py` of big_transfer).
SEEN = {20_000: 500 * 512, 500_000: 10_000 * 512, math.inf: 20_000 * 512}
# Limits of the number of passes over the training images.
MOST_PASSES, FEWEST_PASSES = 100, 10
# Fewest patches along a side of the images of a model with random weights: 32 pixels in patches of
# 4 pixels.
FEWEST_PATCHES = 8
# Default time limit on a CPU.
CPU_MINUTES = 60
# Evaluating and saving multiply the time of training by `OVERHEAD`; starting takes `START` seconds.
OVERHEAD, START = 1.2, 30
# The time of a training step is measured with `SMALL_BATCH` images. If a step with the whole batch
# should take less than `SHORT_STEP` seconds, it is measured instead.
SMALL_BATCH, SHORT_STEP = 32, 2.0


@dataclasses.dataclass(frozen=True)
class RuleInputs:
    """The properties of the data and the model that the rules depend on.

    Args:
        counts: number of training images of each class that has any.
        side: median of the smaller sides of the images, in pixels.
        options: options of the model, as in `keras_vit.models.ImageModel`.
        is_pretrained: whether the model has trained weights.
    """

    counts: tuple[int, ...]
    side: int
    options: Options
    is_pretrained: bool

    @property
    def num_images(self):
        """Number of training images."""
        return sum(self.counts)

    @property
    def seen(self):
        """Number of images to train on, with repetitions."""
        seen = next(seen for below, seen in SEEN.items() if self.num_images < below)
        return min(seen, MOST_PASSES * self.num_images)

    @property
    def usual_size(self):
        """Side in pixels of the training images, unless the images of the dataset are larger.

        A model with trained weights keeps its image size. For a model with random weights, small
        images are enlarged only to `FEWEST_PATCHES` patches per side: a larger size would cost time
        and add no detail.
        """
        size = max(self.options.image_size)
        if not self.is_pretrained:
            size = min(size, max(self.side, FEWEST_PATCHES * self._stride))
        return self.tiled(size)

    def tiled(self, size):
        """Round `size` down to a multiple of the patch size, at least one patch."""
        return max(int(size) // self._stride, 1) * self._stride

    @property
    def _stride(self):
        return 32 if is_resnet(self.options) else math.lcm(*self.options.stride)


def _batch_size(inputs, settings):
    return min(max(2 ** round(math.log2(inputs.seen / 500)), 32), 512)


def _steps(inputs, settings):
    return max(_in_epochs(inputs.seen / settings["batch_size"]), 20)


def _image_size(inputs, settings):
    size = inputs.usual_size
    return inputs.tiled(min(inputs.side, 384 / 224 * size)) if inputs.side > size else size


def _min_crop_area(inputs, settings):
    return 0.5 if inputs.num_images < 20_000 else settings["min_crop_area"]


def _class_balance(inputs, settings):
    return "sampling" if max(inputs.counts) > 1.5 * min(inputs.counts) else "none"


def _monitor(inputs, settings):
    return "val_balanced_accuracy" if settings["class_balance"] == "sampling" else None


def _learning_rate(inputs, settings):
    is_small = inputs.is_pretrained and settings["batch_size"] < 512
    return 0.01 if is_small else settings["learning_rate"]


def _warmup_steps(inputs, settings):
    return min(max(settings["steps"] // 10, 1), 500)


# The rules in the order in which they are applied: the name of a setting, a function that computes
# the setting from the `RuleInputs` and the settings so far, and the reason to log. The crop area
# and the learning rate for few images were chosen by experiments on CIFAR-10
# (`benchmarks/auto.py`).
RULES = (
    ("batch_size", _batch_size, "a power of two that gives about 500 steps, from 32 to 512"),
    ("steps", _steps, "BiT-HyperRule by the number of images, at most 100 passes"),
    ("warmup_steps", _warmup_steps, "a tenth of the steps, at most 500"),
    ("image_size", _image_size, "the model's size; less for small images, more for large images"),
    ("min_crop_area", _min_crop_area, "with few images, crops keep at least half of the area"),
    ("class_balance", _class_balance, "images of rare classes are repeated if class sizes differ"),
    ("monitor", _monitor, "the balanced accuracy selects the best model if class sizes differ"),
    ("learning_rate", _learning_rate, "the paper's rate, or a smaller one for small batches"),
)


def auto_recipe(
    data: str,
    model: str | os.PathLike,
    *,
    minutes: float | None = None,
    seed: int = 0,
    image_size: int | None = None,
    split: str = "train",
    may_freeze: bool = True,
    upright: bool = False,
    **options: Any,
) -> Recipe:
    """Choose the settings of a training run for a dataset, a model and this machine.

    The number of steps and the batch size follow BiT-HyperRule. The image size depends on the
    images and the model. Images of rare classes are repeated if class sizes differ. The number of
    images that are computed at a time is found by measuring training steps. The log has the chosen
    settings, what was changed to meet the time limit, and an estimate of the training time.

    Args:
        data: name of a dataset, as in `keras_vit.data.load`.
        model: name of a variant, a path or a checkpoint, as in `keras_vit.training.train`.
        minutes: time limit of the training; by default 60 on a CPU, and none on an accelerator.
        seed: seed of the run.
        image_size: side of the images in pixels; by default it depends on the images and the model.
        split: name of the split to train on.
        may_freeze: whether the recipe may train only the head to meet the time limit. Pass `False`
            if the model is trained with a teacher.
        upright: whether photographs are turned upright, as in `Recipe`.
        **options: `classes`, `data_dir` and `exclude`, as in `keras_vit.data.load`.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if fewer than two classes have two or more training images, the images are
            multi-label, the model does not exist, or `minutes` or `image_size` is not positive.

    Reference:
        BiT (arXiv 1912.11370), section 3.3; Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if minutes is not None and not (is_number(minutes) and minutes > 0):
        raise ValueError(f"`minutes` must be a positive number. Received: minutes={minutes!r}")
    check_model_path(model)
    inputs = find_rule_inputs(data, model, split, **options)
    recipe = dataclasses.replace(recipe_for_images(inputs, seed, image_size), upright=upright)
    if minutes is None and not has_accelerator():
        minutes = CPU_MINUTES
    smallest = image_size or inputs.usual_size
    return _for_machine(recipe, inputs, model, minutes, may_freeze, smallest)


def find_rule_inputs(data, model, split="train", **options):
    """Return the `RuleInputs` of a dataset and a model; arguments as in `auto_recipe`."""
    options = {name: value for name, value in options.items() if value}
    source = load(data, split, 32, 1, **options).info.dataset.source
    if source.has_masks or source.has_values or source.is_multi_label:
        raise ValueError(
            "`auto` needs images with one label each. Use `train segment` for masks, `train "
            "finetune --loss sigmoid` for several labels per image, and `train finetune --loss "
            f"regression` for values. Received: data={data!r}"
        )
    _, counts = np.unique(source.labels(), return_counts=True)
    # Raise an error now if there are no validation images.
    load(data, "validation", 32, 1, **options)
    sample = source.examples.shard(-(-source.num_examples // 64), 0)
    encoded = dataclasses.replace(source, examples=sample).encoded()
    sizes = encoded.map(lambda number, image, label: declared_size(image)).ignore_errors()
    sides = [min(size) for size in sizes.as_numpy_iterator()]
    if is_variant(model):
        model_options = find_variant(model).replace(image_size=DEFAULT_IMAGE_SIZE)
    else:
        model_options = inspect_checkpoint(find_model(model)).options
    side = int(np.median(sides)) if sides else max(model_options.image_size)
    return RuleInputs(tuple(counts.tolist()), side, model_options, not is_variant(model))


def recipe_for_images(inputs, seed=0, image_size=None):
    """Return the recipe for the images and the model, not yet adapted to this machine.

    `seed` and `image_size` are the arguments of `auto_recipe`.
    """
    settings = vars(RECIPES["finetune"])
    if not inputs.is_pretrained:
        _log("the model has random weights: it is trained from scratch with AdamW")
        settings = {**vars(RECIPES["pretrain"]), "decay": "cosine", "epochs": None, "dropout": 0.0}
        settings |= {"pre_logits": False, "clip_norm": 1.0, "learning_rates": (3e-4, 1e-3, 3e-3)}
    counts = (
        inputs.num_images,
        len(inputs.counts),
        min(inputs.counts),
        max(inputs.counts),
        inputs.side,
    )
    _log("%d training images of %d classes, %d to %d per class; median side %d pixels", *counts)
    for name, rule, reason in RULES:
        value = rule(inputs, settings)
        if name == "image_size" and image_size is not None:
            value, reason = image_size, "as given"
        _log("%s %s: %s", name, value, reason)
        settings = {**settings, name: value}
    return dataclasses.replace(Recipe(**settings), seed=seed)


def _in_epochs(steps):
    """Round down to a multiple of 10, which `Recipe.epoch_lengths` can divide into equal epochs."""
    return int(steps) // 10 * 10


def _for_machine(recipe, inputs, model, minutes, may_freeze, smallest):
    """Adapt the recipe to the memory of this machine and to the time limit.

    `smallest` is the image size to which images may be reduced to meet the time limit.
    """
    smaller = dataclasses.replace(recipe, image_size=min(recipe.image_size, smallest))
    _log("measuring the time of a training step")
    micro_batch, seconds = _measure(smaller, model, len(inputs.counts))
    per_pixel = seconds / smaller.image_size**2
    pixels = micro_batch * smaller.image_size**2
    recipe, smaller = _accumulating(recipe, pixels), _accumulating(smaller, pixels)
    limit = math.inf if minutes is None else 60 * minutes
    chosen, gave_up = recipe, []
    if _estimate(chosen, inputs, per_pixel) > limit and smaller != recipe:
        chosen, gave_up = smaller, [f"{recipe.image_size} pixels"]
    if _estimate(chosen, inputs, per_pixel) > limit:
        share = max(limit - START, 0) / (_estimate(chosen, inputs, per_pixel) - START)
        fewest = FEWEST_PASSES * inputs.num_images / recipe.batch_size
        steps = _in_epochs(share * chosen.steps)
        # A model with random weights is never frozen: its features are useless to the head.
        if steps >= max(fewest, 20) or not (inputs.is_pretrained and may_freeze):
            steps = max(steps, 20)
            gave_up.append(f"{recipe.steps - steps} of {recipe.steps} steps")
            chosen = dataclasses.replace(chosen, steps=steps, warmup_steps=max(steps // 10, 1))
        else:
            gave_up.append("training of the backbone: only the head is trained")
            chosen = dataclasses.replace(chosen, freeze=True, accumulation_steps=1)
    estimate = _estimate(chosen, inputs, per_pixel)
    micro_batch = chosen.batch_size // chosen.accumulation_steps
    passes = chosen.steps * chosen.batch_size / inputs.num_images
    _log("%d images are computed at a time; %.1f passes over the images", micro_batch, passes)
    if gave_up:
        text = "given up to meet the time limit of %g minutes: %s"
        _log(text, limit / 60, ", ".join(gave_up))
    more = ", more than the time limit" if estimate > limit else ""
    _log("about %.1f minutes on this machine (limit: `--minutes`)%s", estimate / 60, more)
    return chosen


def _measure(recipe, model, num_classes):
    """Return the size of a micro-batch, and the seconds per image of a training step.

    If the steps of a small micro-batch are short, they are mostly overhead. Then measure the whole
    batch, halved until it fits into the memory.
    """

    def seconds(size):
        return seconds_per_image(recipe, make_model(recipe, model, num_classes), size)

    small, size = min(recipe.batch_size, SMALL_BATCH), recipe.batch_size
    small_seconds = seconds(small)
    while size > small and size * small_seconds < SHORT_STEP:
        try:
            return size, seconds(size)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            size //= 2
    return small, small_seconds


def _accumulating(recipe, pixels):
    """Return the recipe with micro-batches of at most `pixels` pixels, by gradient accumulation."""
    micro_batch = recipe.batch_size
    while micro_batch > 1 and micro_batch * recipe.image_size**2 > pixels:
        micro_batch //= 2
    return dataclasses.replace(recipe, accumulation_steps=recipe.batch_size // micro_batch)


def _estimate(recipe, inputs, seconds_per_pixel):
    """Estimate the seconds that a run takes."""
    seconds = seconds_per_pixel * recipe.image_size**2
    if recipe.freeze:
        # One forward pass of each image, a third of the time of a training step. Training the head
        # takes almost no time.
        return START + inputs.num_images * seconds / 3 * OVERHEAD
    return START + recipe.steps * recipe.batch_size * seconds * OVERHEAD


def has_accelerator():
    """Return whether the backend computes on a GPU or a TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return not all(device.startswith("cpu") for device in keras.distribution.list_devices())


def seconds_per_image(recipe, model, batch_size, steps=3):
    """Measure the time of a training step, per image.

    The model is trained on noise, so do not use it afterwards. The first step is not measured,
    because the backend compiles the step in it.
    """
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch_size, *model.input_shape[1:])).astype("float32")
    labels = np.arange(batch_size) % model.output_shape[-1]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = without_unused_tokens(model)
    model.compile(make_optimizer(recipe, model, 10**9), loss)
    model.fit(images, labels, batch_size, verbose=0)
    repeated = np.concatenate([images] * steps), np.concatenate([labels] * steps)
    start = time.perf_counter()
    model.fit(*repeated, batch_size, verbose=0)
    return (time.perf_counter() - start) / (steps * batch_size)


def _log(message, *values):
    logging.getLogger("keras_vit").info(f"auto: {message}", *values)
