"""Models whose last block leaves out the tokens that the pooling does not read."""

import keras

from keras_vit.layers import ClassTokenPooling, TransformerBlock
from keras_vit.models.image_model import copy_attributes, functional
from keras_vit.models.surgery import strategy_scope


def without_unused_tokens(model):
    """Return an equivalent model, which computes the last block for the class token alone.

    If a model is pooled by its class token, the last block needs the keys and values of all tokens,
    but the output of only one (of two, with a distillation token). The new model has the layers and
    the variables of `model`. If it has dropout, it draws other random numbers than `model`.

    Args:
        model: a Functional model.

    Returns:
        A new model, not compiled; or `model` itself if it is not pooled by a class token, if other
        outputs of the last block are used, or with relative position embeddings.

    Example:
    >>> from keras_vit.models.unused_tokens import without_unused_tokens
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> without_unused_tokens(model).weights[-1] is model.weights[-1]
    True
    """
    pools = [layer for layer in model.layers if isinstance(layer, ClassTokenPooling)]
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    # `relative_bias` needs all tokens as queries.
    if not pools or not blocks or blocks[-1].relative_grid_size:
        return model
    # Outputs for the class token only, and layers besides norms and the pooling that read them.
    shortened, readers = [], []

    def call(layer, *args, **options):
        takes_shortened = _has_any((args, options), shortened)
        if layer is blocks[-1]:
            options["num_queries"] = pools[0].num_tokens
        outputs = layer(*args, **options)
        is_norm = isinstance(layer, keras.layers.LayerNormalization)
        if layer is blocks[-1] or (takes_shortened and is_norm):
            shortened.append(outputs)
        elif takes_shortened and layer is not pools[0]:
            readers.append(layer)
        return outputs

    with strategy_scope(model):
        # `clone_model` would compile the clone of a compiled model, and build its optimizer.
        uncompiled = functional(model, model.output)
        new = keras.models.clone_model(
            uncompiled, input_tensors=model.input, clone_function=lambda x: x, call_function=call
        )
    if readers or _has_any(new.output, shortened):
        return model
    copy_attributes(model, new)
    return new


def _has_any(tensors, searched):
    return any(x is y for x in keras.tree.flatten(tensors) for y in searched)
