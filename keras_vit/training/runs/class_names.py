"""The names of a model's classes, wherever they are recorded."""


def class_names_of(model, source):
    """Return the names of a model's classes, a list, or `None` if no file says them.

    Models carry them; only the `.keras` files of earlier versions have them beside the model.

    Args:
        model: the model.
        source: what it was loaded from: a path, an address or a name.
    """
    # Commands import this module before they need Keras.
    from keras_vit.training.runs.run import find_model
    from keras_vit.training.runs.saved_models import recorded_class_names

    path, carried = find_model(source), getattr(model, "class_names", None)
    if path.suffix == ".keras":
        return recorded_class_names(path, model.output_shape[-1])
    return None if carried is None else list(carried)
