"""Losses that do not fit the outputs of a model."""

import logging

import keras

_CROSSENTROPIES = {
    keras.losses.SparseCategoricalCrossentropy: keras.losses.sparse_categorical_crossentropy,
    keras.losses.CategoricalCrossentropy: keras.losses.categorical_crossentropy,
    keras.losses.BinaryCrossentropy: keras.losses.binary_crossentropy,
    keras.losses.CategoricalFocalCrossentropy: keras.losses.categorical_focal_crossentropy,
    keras.losses.BinaryFocalCrossentropy: keras.losses.binary_focal_crossentropy,
}


def warn_of_loss(model):
    """Log a warning if a model returns logits, or features, and its loss takes probabilities.

    Lists and dictionaries of losses, and losses of one's own, are not looked at.
    """
    loss, names = getattr(model, "loss", None), [layer.name for layer in model.layers]
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    function = _CROSSENTROPIES.get(type(loss), loss)
    if function not in _CROSSENTROPIES.values():
        return
    name = function.__name__
    log = logging.getLogger("keras_vit")
    if (model.options or {}).get("num_classes") == 0:
        log.warning("the model has no head: the loss %s takes its features for classes", name)
    # The functions take probabilities by default.
    elif not getattr(loss, "from_logits", False) and "head" in names:
        head = model.get_layer("head")
        if model.outputs[0] is head.output and head.activation is keras.activations.linear:
            log.warning(
                "the model returns logits, and the loss %s takes probabilities: give it "
                "from_logits=True, or build the model with classifier_activation='softmax'",
                name,
            )
