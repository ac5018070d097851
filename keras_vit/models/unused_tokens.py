"""Models whose last block leaves out the tokens that the pooling does not read."""

import keras

from keras_vit.layers import ClassTokenPooling, TransformerBlock
from keras_vit.models.image_model import ImageModel, copy_attributes, functional
from keras_vit.models.surgery import strategy_scope


def without_unused_tokens(model):
    """Return an equivalent model, which computes the last block for the class token alone.

    If a model is pooled by its class token, the last block needs the keys and values of all tokens,
    but the output of only one (of two, with a distillation token). The new model has the layers and
    the variables of `model`, and is saved as `model`. If it has dropout, it draws other random
    numbers than `model`.

    Args:
        model: a Functional model.

    Returns:
        A new model, not compiled; or `model` itself if it is not pooled by a class token, if other
        outputs of the last block are used, if there are relative position embeddings, or if the
        class of `model` is a subclass of the user.

    Example:
    >>> from keras_vit.models.unused_tokens import without_unused_tokens
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> without_unused_tokens(model).weights[-1] is model.weights[-1]
    True
    """
    # Exact types, because a subclass may read other tokens.
    has_pooling = any(type(layer) is ClassTokenPooling for layer in model.layers)
    blocks = [layer for layer in model.layers if type(layer) is TransformerBlock]
    # `relative_bias` needs all tokens as queries.
    if not has_pooling or not blocks or blocks[-1].relative_grid_size:
        return model
    if type(functional(model, model.output)) is not type(model):
        return model
    num_queries = _num_tokens_read(model, blocks[-1])
    if num_queries is None:
        return model

    def call(layer, *args, **options):
        if layer is blocks[-1]:
            options["num_queries"] = num_queries
        return layer(*args, **options)

    new = _call_again(model, call)
    copy_attributes(model, new)
    if isinstance(new, ImageModel):
        new.config_to_save = model.get_config
    return new


def _num_tokens_read(model, block):
    """Return how many tokens of a block a pooling reads; `None` if there are other readers."""
    tokens, counts, others = [], set(), []

    def call(layer, *args, **options):
        outputs = layer(*args, **options)
        is_read = _has_any((args, options), tokens)
        if layer is block:
            # A block that is called twice, or that also returns the scores, is left alone.
            if tokens or not isinstance(outputs, keras.KerasTensor):
                others.append(layer)
            tokens.append(outputs)
        elif is_read and _is_layer_norm(layer):
            tokens.append(outputs)
        elif is_read and type(layer) is ClassTokenPooling:
            counts.add(layer.num_tokens)
        elif is_read:
            others.append(layer)
        return outputs

    new = _call_again(model, call)
    is_read_whole = others or len(counts) != 1 or _has_any(new.output, tokens)
    return None if is_read_whole else counts.pop()


def _is_layer_norm(layer):
    """Whether a layer normalizes each token by itself."""
    return type(layer) is keras.layers.LayerNormalization and layer.axis in (-1, [-1], [2])


def _call_again(model, call):
    """Call the layers of a model again by a function, and return the new model."""
    with strategy_scope(model):
        # `clone_model` would compile the clone of a compiled model, and build its optimizer.
        uncompiled = functional(model, model.output)
        return keras.models.clone_model(
            uncompiled,
            input_tensors=model.input,
            clone_function=lambda layer: layer,
            call_function=call,
        )


def _has_any(tensors, searched):
    return any(x is y for x in keras.tree.flatten(tensors) for y in searched)
