"""A recipe for a dataset, a model and a machine."""

import collections
import dataclasses
import logging
import math
import os
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.checkpoints.runs import find_model
from keras_vit.checkpoints.trained import check_model_path
from keras_vit.core.arguments import check_integer, is_number
from keras_vit.data.images.decoding import declared_size
from keras_vit.data.loading import load
from keras_vit.models import find_variant
from keras_vit.models.options import DEFAULT_IMAGE_SIZE, Options, is_resnet
from keras_vit.models.variants import is_variant
from keras_vit.training.recipes import FINETUNE, PRETRAIN, machine
from keras_vit.training.recipes.recipe import Recipe
from keras_vit.training.starting_model import make_model

# Images seen by the number of training images: 500, 10,000 or 20,000 steps of 512 images
# (`bit_hyperrule.py` of big_transfer); but no image is seen more often than `MOST_PASSES` times.
SEEN = {20_000: 500 * 512, 500_000: 10_000 * 512, math.inf: 20_000 * 512}
MOST_PASSES, FEWEST_PASSES = 100, 10
# Patches along a side of small images, without trained weights: 32 pixels in patches of 4.
FEWEST_PATCHES = 8
SMALLEST_BATCH, LARGEST_BATCH, STEPS = 32, 512, 500
# The paper fine-tunes models of 224 pixels at 384.
ZOOM = 384 / 224
SCRATCH_RATES = (3e-4, 1e-3, 3e-3)
CPU_MINUTES = 60
# With few images crops keep at least half of the area, and small batches get a smaller rate; both
# were chosen on images of CIFAR-10 (`benchmarks/auto.py`). Otherwise as in the paper.
FEW_IMAGES, FEW_CROP_AREA, SMALL_BATCH_RATE = 20_000, 0.5, 0.01
UNEVEN = 1.5
# For evaluations and saving; and seconds for starting.
OVERHEAD, START = 1.2, 30
# A step that takes fewer seconds is measured again, with a whole batch.
SHORT_STEP = 2.0


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about the data and the model that determine the settings.

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
    def usual_size(self):
        """The side of images to train on, in pixels, unless the images are larger.

        It is the model's; for random weights that of the images, which to enlarge costs time and
        adds no detail, but at least `FEWEST_PATCHES` patches.
        """
        size = max(self.options.image_size)
        if not self.is_pretrained:
            size = min(size, max(self.side, FEWEST_PATCHES * self._stride))
        return self.fitting(size)

    def fitting(self, size):
        """Return the greatest side up to `size` that the patches tile, at least one patch."""
        return max(int(size) // self._stride, 1) * self._stride

    @property
    def _stride(self):
        if is_resnet(self.options):
            return 32
        return math.lcm(*self.options.stride)


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

    The number of steps follows BiT-HyperRule, the resolution the images and the model, the batch
    size the memory. Rare classes are repeated if classes are uneven. The choices, what is given up
    for the time limit, and an estimate of the time are logged. The recipe has all settings as
    numbers: training by it again repeats the run.

    Args:
        data: name of a dataset, as in `keras_vit.data.load`.
        model: name of a variant, a path or a checkpoint, as in `keras_vit.training.train`.
        minutes: greatest time of the training; by default 60 on a CPU, and none on an accelerator.
        seed: seed of the run.
        image_size: side of the images in pixels; by default it follows the images and the model.
        split: name of the split to train on.
        may_freeze: whether it may train only the head to meet the time; not with a teacher.
        upright: whether photographs are turned upright, as in a `Recipe`.
        **options: `classes`, `data_dir` and `exclude`, as in `keras_vit.data.load`.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if there are no two training images of each of two classes, an image has several
            labels, there is no such model, or `minutes` or `image_size` is not positive.

    Reference:
        BiT (arXiv 1912.11370), section 3.3; Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if minutes is not None and not (is_number(minutes) and minutes > 0):
        raise ValueError(f"`minutes` must be a positive number. Received: minutes={minutes!r}")
    if image_size is not None:
        check_integer("image_size", image_size, minimum=1)
    if isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be the name of a variant, a path or a checkpoint, from which the steps "
            f"are timed. Received: the built model {model.name!r}"
        )
    check_model_path(model)
    facts = find_facts(data, model, split, **options)
    recipe = dataclasses.replace(recipe_for_images(facts, seed, image_size), upright=upright)
    if minutes is None and not machine.has_accelerator():
        minutes = CPU_MINUTES
    smallest = image_size or facts.usual_size
    return _for_machine(recipe, facts, model, minutes, may_freeze, smallest)


def find_facts(data, model, split="train", **options):
    """Return the `Facts` of a dataset and a model; arguments and errors as in `auto_recipe`."""
    options = {name: value for name, value in options.items() if value}
    source = load(data, split, 32, 1, **options).source
    if source.has_masks:
        raise ValueError(
            "`auto` needs images of one label each; `train segment` takes masks. "
            f"Received: {data!r}"
        )
    labels = source.examples.map(lambda number, payload, label: label).as_numpy_iterator()
    counts = collections.Counter(label.tobytes() for label in map(np.asarray, labels))
    if source.has_several_labels:
        raise ValueError(
            "`auto` needs images of one label each; `train finetune --loss sigmoid` takes several. "
            f"Received: images of several labels in {data!r}"
        )
    if len(counts) < 2 or min(counts.values()) < 2:
        raise ValueError(
            "`auto` needs two training images of each of two classes. Received: "
            f"{source.num_examples} training images of {len(counts)} classes in {data!r}"
        )
    # Raises an error now if there is no image to validate on.
    load(data, "validation", 32, 1, **options)
    few = source.examples.shard(-(-source.num_examples // 64), 0)
    encoded = dataclasses.replace(source, examples=few).encoded()
    sizes = encoded.map(lambda number, image, label: declared_size(image)).ignore_errors()
    sides = [min(size) for size in sizes.as_numpy_iterator()]
    if is_variant(model):
        model_options = find_variant(model).replace(image_size=DEFAULT_IMAGE_SIZE)
    else:
        model_options = inspect_checkpoint(find_model(model)).options
    side = int(np.median(sides)) if sides else max(model_options.image_size)
    return Facts(tuple(counts.values()), side, model_options, not is_variant(model))


def recipe_for_images(facts, seed=0, image_size=None):
    """Return the recipe for the images, whatever the machine; arguments as in `auto_recipe`."""
    num_images = sum(facts.counts)
    seen = next(seen for below, seen in SEEN.items() if num_images < below)
    seen = min(seen, MOST_PASSES * num_images)
    batch_size = 2 ** round(math.log2(seen / STEPS))
    batch_size = min(max(batch_size, SMALLEST_BATCH), LARGEST_BATCH)
    steps = max(_in_epochs(seen / batch_size), 20)
    size = image_size or facts.usual_size
    if image_size is None and facts.side > size:
        size = facts.fitting(min(facts.side, ZOOM * size))
    changes = {"min_crop_area": FEW_CROP_AREA} if num_images < FEW_IMAGES else {}
    if max(facts.counts) > UNEVEN * min(facts.counts):
        changes |= {"class_balance": "sampling", "monitor": "val_balanced_accuracy"}
    if not facts.is_pretrained:
        _log(
            "the model has random weights: give the name or the path of trained ones for few images"
        )
        changes |= {"decay": "cosine", "epochs": None, "dropout": 0.0, "pre_logits": False}
        changes |= {"clip_norm": 1.0, "learning_rates": SCRATCH_RATES}
    elif batch_size < LARGEST_BATCH:
        changes["learning_rate"] = SMALL_BATCH_RATE
    return dataclasses.replace(
        FINETUNE if facts.is_pretrained else PRETRAIN,
        image_size=size,
        batch_size=batch_size,
        steps=steps,
        warmup_steps=min(max(steps // 10, 1), 500),
        seed=seed,
        **changes,
    )


def _in_epochs(steps):
    """Round down to a multiple of 10, which divides into epochs; each ends with an evaluation."""
    return int(steps) // 10 * 10


def _for_machine(recipe, facts, model, minutes, may_freeze, smallest):
    """Return the recipe that fits into the memory and the time of this machine.

    To meet the time, images may get smaller, down to `smallest` pixels.
    """
    recipe = _accumulate(recipe, facts)
    measured = dataclasses.replace(recipe, image_size=min(recipe.image_size, smallest))
    _log("measuring the time of a training step")
    made = make_model(measured, model, len(facts.counts))
    part = recipe.batch_size // recipe.accumulation_steps
    size = min(part, SMALLEST_BATCH)
    seconds = machine.seconds_per_image(measured, made, size)
    if size < part and part * seconds < SHORT_STEP:
        # A short step of few images is mostly overhead.
        seconds = machine.seconds_per_image(measured, made, part)
    per_pixel = seconds / measured.image_size**2
    limit = math.inf if minutes is None else 60 * minutes
    chosen, gave_up = recipe, []
    if _estimate(chosen, facts, per_pixel) > limit and measured != recipe:
        chosen, gave_up = measured, [f"{recipe.image_size} pixels"]
    if _estimate(chosen, facts, per_pixel) > limit:
        share = max(limit - START, 0) / (_estimate(chosen, facts, per_pixel) - START)
        fewest = FEWEST_PASSES * sum(facts.counts) / recipe.batch_size
        steps = _in_epochs(share * chosen.steps)
        # A head on random features learns nothing.
        if steps >= max(fewest, 20) or not (facts.is_pretrained and may_freeze):
            steps = max(steps, 20)
            gave_up.append(f"{recipe.steps - steps} of {recipe.steps} steps")
            chosen = dataclasses.replace(chosen, steps=steps, warmup_steps=max(steps // 10, 1))
        else:
            gave_up.append("training all layers: the backbone is frozen")
            chosen = dataclasses.replace(chosen, freeze=True, accumulation_steps=1)
    estimate = _estimate(chosen, facts, per_pixel)
    _describe(chosen, facts, gave_up, estimate, limit)
    return chosen


def _accumulate(recipe, facts):
    """Divide batches until the activations of one part fit into the memory."""
    options = facts.options.replace(image_size=recipe.image_size)
    needed, free = machine.bytes_per_image(options), machine.usable_memory() / 2
    parts = 1
    while needed * recipe.batch_size / parts > free and parts < recipe.batch_size:
        parts *= 2
    return dataclasses.replace(recipe, accumulation_steps=parts)


def _estimate(recipe, facts, seconds_per_pixel):
    """Return the seconds of a run."""
    seconds = seconds_per_pixel * recipe.image_size**2
    if recipe.freeze:
        # A forward pass is a third of a step; the head takes almost no time.
        return START + sum(facts.counts) * seconds / 3 * OVERHEAD
    return START + recipe.steps * recipe.batch_size * seconds * OVERHEAD


def _describe(recipe, facts, gave_up, seconds, limit):
    num_images = sum(facts.counts)
    _log(
        "%d training images of %d classes, %d to %d of each, of %d pixels",
        *(num_images, len(facts.counts), min(facts.counts), max(facts.counts), facts.side),
    )
    _log(
        "%d pixels (the model: %d), %d steps of %d images (%d at a time), %.1f passes; %s, %s",
        *(recipe.image_size, max(facts.options.image_size), recipe.steps, recipe.batch_size),
        recipe.batch_size // recipe.accumulation_steps,
        recipe.steps * recipe.batch_size / num_images,
        f"{recipe.optimizer} with a learning rate of {recipe.learning_rate:g}",
        "only the head is trained" if recipe.freeze else "all layers are trained",
    )
    if recipe.class_balance != "none":
        _log("rare classes are repeated, the best model is that of the best balanced accuracy")
    if gave_up:
        what = ", ".join(gave_up)
        _log("to meet the time limit of %g minutes it gives up %s", limit / 60, what)
    more = ", more than the time limit" if seconds > limit else ""
    _log("about %.1f minutes on this machine (limit: `--minutes`)%s", seconds / 60, more)


def _log(message, *values):
    logging.getLogger("keras_vit").info(f"auto: {message}", *values)
