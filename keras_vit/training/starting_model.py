"""The model that a run starts from."""

import logging
import pathlib
import re

import keras

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint
from keras_vit.models import Variant, build, find_variant, freeze_blocks, replace_head, resize
from keras_vit.models.files import load_model
from keras_vit.models.options import is_resnet
from keras_vit.training.run import find_model


def make_model(recipe, model, num_classes, dtype=None):
    """Make the model that a recipe trains: a new one, or a trained one with a new head.

    The recipe alone decides what is trained: all but its `frozen_blocks`, whatever the loaded model
    has frozen.

    Args:
        recipe: a `Recipe`.
        model: name of a variant; path of a `.keras` file or of a run's directory; or a checkpoint
            as in `keras_vit.from_checkpoint`. What is loaded gets a zero head and the recipe's
            image size. A `.keras` file keeps its own dropout.
        num_classes: classes of the head; there is none to predict masked patches.
        dtype: policy of the model; a `.keras` file has its own.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if `model` is none of them, the patches do not tile the recipe's images, or a
            `dtype` is given for a `.keras` file.
    """
    num_classes = num_classes if recipe.is_of_classes else 0
    made = _make_model(recipe, model, num_classes, dtype)
    for layer in made.layers:
        if hasattr(layer, "remat"):
            layer.remat = recipe.remat
    freeze_blocks(made, recipe.frozen_blocks)
    if recipe.head_bias:
        bias = made.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, recipe.head_bias))
    return made


def _make_model(recipe, model, num_classes, dtype):
    keras.utils.set_random_seed(recipe.seed)
    if _is_variant(model):
        return _build_variant(recipe, find_variant(model), num_classes, dtype)
    path = find_model(model)
    if path.suffix != ".keras":
        options = {"image_size": recipe.image_size, "dtype": dtype}
        if recipe.dropout or recipe.pre_logits:
            summary = inspect_checkpoint(model, image_size=recipe.image_size)
            if is_resnet(summary.options):
                _tell_what_is_left_out(recipe)
            else:
                options["dropout"] = recipe.dropout
        return from_checkpoint(model, num_classes=num_classes, **options)
    if dtype is not None:
        raise ValueError(
            "`dtype` is for a model that is not a .keras file, which has its own. "
            f"Received: dtype={dtype!r}, model={str(model)!r}"
        )
    trained = replace_head(load_model(path), num_classes)
    size = (recipe.image_size, recipe.image_size)
    return trained if trained.input_shape[1:3] == size else resize(trained, size)


def _build_variant(recipe, variant, num_classes, dtype):
    options = {"num_classes": num_classes, "image_size": recipe.image_size, "dtype": dtype}
    # Table 3 of the paper: its ResNets have neither dropout nor a hidden layer in the head.
    if not isinstance(variant, Variant):
        _tell_what_is_left_out(recipe)
    else:
        options["dropout"] = recipe.dropout
        options["representation_size"] = variant.embedding_dim if recipe.pre_logits else None
        options["pooling"] = recipe.pooling
        options["position_embedding"] = recipe.position_embedding
    return build(variant.name, **options)


def _tell_what_is_left_out(recipe):
    if recipe.dropout or recipe.pre_logits:
        logging.getLogger("keras_vit").info(
            "a ResNet has no dropout and no `pre_logits`: the recipe's are left out"
        )


def _is_variant(model):
    """Whether a model is meant by its variant's name and not by a file, an address or weights."""
    return re.fullmatch(r"\w+", str(model)) and not pathlib.Path(model).exists()
