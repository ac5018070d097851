"""The names of a model's classes, wherever they are recorded."""

import logging
import pathlib


def class_names_of(model, source, is_guessing=True):
    """Return the names of a model's classes, or `None`: from its files or run, or ImageNet's.

    `source` is what the model was loaded from: a path, an address or a name. With `is_guessing`,
    ImageNet's names are taken, with a warning, if it is no name of the catalog or of AugReg.
    """
    # Commands import this module before they need Keras.
    from keras_vit.checkpoints.configuration.class_names import read_class_names
    from keras_vit.data.labels import LABEL_FILES, imagenet_class_names
    from keras_vit.training.runs.run import find_model
    from keras_vit.training.runs.saved_models import recorded_class_names

    path, num_classes = find_model(source), model.output_shape[-1]
    if path.suffix == ".keras":
        return recorded_class_names(path, num_classes)
    if all(layer.name != "head" for layer in model.layers):
        return None
    recorded = read_class_names(source, num_classes)
    if recorded is not None or num_classes not in LABEL_FILES:
        return recorded
    if not _is_published_name(str(source)):
        if not is_guessing:
            return None
        logging.getLogger("keras_vit").warning(
            "%s does not record the names of its classes: as there are %d, they are taken to be "
            "ImageNet's",
            *(source, num_classes),
        )
    return imagenet_class_names(num_classes)


def _is_published_name(source):
    """Whether a model was named as in the catalog or in AugReg, and not by a path or address."""
    from keras_vit.checkpoints.catalog import CHECKPOINTS
    from keras_vit.checkpoints.catalog.augreg import parse_augreg

    if any(source == row.name for row in CHECKPOINTS):
        return True
    try:
        parse_augreg(source)
    except ValueError:
        return False
    return "/" not in source and not pathlib.Path(source).exists()
