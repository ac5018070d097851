"""The training and validation data of a recipe."""

import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.core.text import name_some
from keras_vit.data.loading import load
from keras_vit.data.padding import count_images, pad
from keras_vit.data.processes import process, sum_over_processes
from keras_vit.data.sources.paper import changes_that_keep_labels, check_augmentation
from keras_vit.training.distribution import check_batch, num_replicas
from keras_vit.training.recipes.recipe import Recipe

# As `load` takes them.
FLIPS = {"never": False, "random": True, "always": "always"}


def load_training_data(
    recipe: Recipe,
    name: str,
    classes: Sequence[str] | None = None,
    fraction: float = 1.0,
    cache: str | os.PathLike | None = None,
    split: str = "train",
    validation: str | None = "validation",
    **options: Any,
) -> tuple[Any, Any]:
    """Load the training and validation splits of a dataset for a recipe.

    Crops and flips that would change the meaning of a label (a number, a place) are left out, and
    this is logged; an augmentation that would is an error. Each of several processes
    (`keras_vit.training.distribution`) reads its share.

    Args:
        recipe: a `Recipe`.
        name: name of the dataset, as in `load`.
        classes: as in `load`.
        fraction: as in `load`, for the training split.
        cache: as in `load`, for the training split.
        split: name of the split to train on, as in `load`.
        validation: name of the split to validate on; `None` for none.
        **options: as in `load`, for both splits.

    Returns:
        `(train, validation)`; the first is repeated.

    Raises:
        ValueError: as `load`, or if the recipe's batches cannot be divided among the replicas, or
            its augmentation would change labels.
    """
    index, count = process()
    check_batch(recipe)
    check_augmentation(name, recipe.augmentation)
    shared = {
        "image_size": (recipe.image_size, recipe.image_size),
        "batch_size": recipe.batch_size // recipe.accumulation_steps // count,
        "classes": classes,
        "one_hot": recipe.needs_soft_labels,
        "upright": recipe.upright,
        "seed": recipe.seed,
        "shard": (index, count),
        **options,
    }
    crops = (recipe.min_crop_area, FLIPS[recipe.flip], recipe.random_crop_from)
    part = {"fraction": fraction, "balanced": recipe.class_balance == "sampling"}
    train = load(
        name,
        split,
        training=True,
        repeat=True,
        # The features of frozen layers are those of whole images.
        **({} if recipe.freeze else changes_that_keep_labels(name, *crops)),
        augmentation=recipe.augmentation,
        cache=cache,
        **part,
        **shared,
    )
    held_out = None if validation is None else load(name, validation, **shared)
    if count > 1:
        # Shares differ by one image, and all processes must run the same number of steps.
        shared["shard"] = (0, 1)
        _describe_whole(train, load(name, split, training=True, **part, **shared))
        if held_out is not None:
            _describe_whole(held_out, load(name, validation, **shared))
    return train, held_out


def _describe_whole(dataset, whole):
    """Replace the facts about one process's share by those of the whole dataset."""
    changes = {name: getattr(whole, name) for name in ("num_examples", "source")}
    dataclasses.replace(dataset.info, **changes).attach(dataset)


def image_digests(train, validation):
    """Return the identities of the images of a run; log those that are in both datasets."""
    if validation is None:
        return {"training": train.source.digest()}
    sources = train.source, validation.source
    ids = [set(map(source.find_id, source.numbers.tolist())) for source in sources]
    if both := sorted(set.intersection(*ids)):
        logging.getLogger("keras_vit").warning(
            "%d of the %d validation images, which choose the best model, are training images "
            "too: %s",
            *(len(both), len(ids[1]), name_some(both)),
        )
    return {"training": train.source.digest(), "validation": validation.source.digest()}


def for_evaluation(dataset, batch_size):
    """Pad a dataset to full batches, which all replicas can share; padding has the weight 0.

    `batch_size` is the number of images in a full batch of all processes.
    """
    # TensorFlow's strategies divide smaller batches themselves.
    if dataset is None or keras.backend.backend() != "jax" or num_replicas() == 1:
        return dataset
    count = process()[1]
    num_batches = -(-dataset.num_examples // batch_size)
    # Keras divides the loss by the number of images, not by the sum of their weights. How many can
    # be decoded is known only after a pass over them.
    weight = num_batches * batch_size / sum_over_processes(count_images(dataset))
    return pad(dataset, batch_size // count, num_batches, weight)
