"""What a run says before it begins: its data, its model, and how long it is."""

import logging

import keras

from keras_vit.checkpoints.runs import find_model
from keras_vit.core.files import exists
from keras_vit.models.variants import is_variant
from keras_vit.training.distribution import is_first_process, num_parts, num_replicas

# Number of names of classes to show.
_SHOWN = 5
# Largest number of passes of a recipe: 2,500 steps of 512 images on the 800 of VTAB-1k.
_MANY_PASSES = 1600
# Number of validation images below which a single one is more than a percent of the accuracy.
_FEW = 100


def announce(recipe, train, validation, model, epoch_examples, keep_head=False):
    """Log what a run trains on, from which weights, and how long.

    Args:
        recipe: a `Recipe`.
        train: the dataset of `load_training_data` to train on.
        validation: the one to validate on, or `None`.
        model: as in `keras_vit.training.train`.
        epoch_examples: number of examples in one pass.
        keep_head: whether a trained model keeps its head.
    """
    if not is_first_process():
        return
    log = logging.getLogger("keras_vit").info
    images = f"{train.num_examples:,} images to train on"
    # `num_examples` counts the repetitions.
    images += " (rare classes repeated)" if recipe.class_balance == "sampling" else ""
    images += f", {validation.num_examples:,} to validate on" if validation is not None else ""
    log("%s; %s", images, _classes(train.class_names))
    log("%s", _model(recipe, model, keep_head))
    if trained := _trained(recipe, is_built=isinstance(model, keras.Model)):
        log("%s", trained)
    epochs, updates = recipe.epoch_lengths(epoch_examples)
    after = "; validation after each epoch" if validation is not None else ""
    steps = f"{epochs * updates:,} steps of {recipe.batch_size:,} images"
    if num_replicas() > 1:
        log("each batch is shared by %d replicas", num_replicas())
    if num_parts() > 1:
        log("each replica is sharded over %d devices", num_parts())
    parts = f"in {epochs} epochs of {updates:,} steps" if epochs > 1 else "in one epoch"
    log("%s, %s%s", steps, parts, after)
    if recipe.accumulation_steps > 1:
        parts = recipe.accumulation_steps
        log("each step is %d batches of %d images", parts, recipe.batch_size // parts)
    if recipe.batch_size > train.num_examples:
        log("a batch has more images than there are to train on: reduce `--batch-size`")
    passes = epochs * updates * recipe.batch_size // train.num_examples
    if passes > _MANY_PASSES:
        log(
            "each image is seen %s times: fewer `--steps` may be enough; `keras-vit train auto` "
            "chooses them by the number of images",
            f"{passes:,}",
        )
    if _has_few(recipe, validation):
        share = 100 / validation.num_examples
        log("each validation image is %.1f %% of the accuracy: small differences are chance", share)


def _trained(recipe, is_built):
    """Return which weights are trained, or `None` for all, or those of a built model."""
    if recipe.freeze:
        return "only the head is trained, on the features of the other layers"
    if is_built:
        return None
    if recipe.unfreeze_steps:
        steps = recipe.unfreeze_steps
        return f"first the head is trained, and one more block after every {steps:,} steps"
    if recipe.lora_rank is not None:
        return f"only LoRA of rank {recipe.lora_rank} and the head are trained"
    if recipe.frozen_blocks:
        return f"the embeddings and the first {recipe.frozen_blocks} blocks are not trained"
    return None


def _has_few(recipe, validation):
    """Return whether the accuracy that selects the best epoch is that of a few images."""
    if validation is None or not recipe.is_of_classes or validation.source.has_several_labels:
        return False
    return validation.num_examples < _FEW


def _classes(names):
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)} classes: {shown}"


def _model(recipe, model, keep_head):
    if isinstance(model, keras.Model):
        return f"{model.name}, a model with its own weights"
    if not is_variant(model):
        file = find_model(model)
        head = f", with {'their' if keep_head else 'a new'} head" if recipe.is_of_classes else ""
        return f"weights of {file if exists(file) else model}{head}"
    # Recipes of fine-tuning have SGD, those that train from random weights AdamW.
    is_fine_tuning = recipe.optimizer == "sgd"
    from_scratch = ": this is training from scratch, which needs many images"
    return f"{model} with random weights{from_scratch if is_fine_tuning else ''}"
