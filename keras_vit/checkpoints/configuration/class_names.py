"""Names of classes in the `config.json` next to weights."""

import collections

from keras_vit.checkpoints.architecture import logger
from keras_vit.core.class_names import check_class_names


def valid_class_names(names, num_classes, path):
    """Check the names of classes that are recorded next to the weights in `path`.

    Return a tuple that `check_class_names` accepts, or `None` if none are recorded for
    `num_classes` classes. If several classes have one name, as in ImageNet, their numbers follow
    it.
    """
    if not names or not num_classes:
        return None
    try:
        what = f"The class names in the config.json of {path}"
        return check_class_names(_numbered(names), what, num_classes)
    except ValueError as error:
        logger.warning("names of classes are ignored: %s", error)
        return None


def _numbered(names):
    """Append the number of the class to each name that several classes have."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    counts = collections.Counter(map(str.casefold, names))
    return [
        name if counts[name.casefold()] == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    ]
