"""Names of classes in the `config.json` next to weights."""

import collections
import pathlib

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.configuration import has_configuration, read_config
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.core.class_names import check_class_names


def read_class_names(source, num_classes):
    """Read the names of classes next to the weights of a model, as a list; see `valid_class_names`.

    `source` is the path or the address of the weights.
    """
    config = _config_of(source)
    names = next(filter(None, (row.class_names(config) for row in FORMATS.values())), None)
    names = valid_class_names(names, num_classes, source)
    return None if names is None else list(names)


def valid_class_names(names, num_classes, path):
    """Check the names of classes that are recorded next to the weights in `path`.

    Return a tuple that `check_class_names` accepts, or `None` if none are recorded for
    `num_classes` classes. If several classes have one name, their numbers follow it.
    """
    if not names or not num_classes:
        return None
    try:
        what = f"The class names in the config.json of {path}"
        if isinstance(names, list) and None in names:
            missing = names.index(None)
            raise ValueError(
                f"{what} must be numbered from 0. Received: no name for class {missing}"
            )
        return check_class_names(_numbered(names), what, num_classes)
    except ValueError as error:
        logger.warning("names of classes are ignored: %s", error)
        return None


def _numbered(names):
    """Append the number of the class to each name that several classes have."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    counts = collections.Counter(map(str.casefold, names))
    if len(counts) < len(names):
        logger.info("classes with the same name get their numbers after it")
    return [
        name if counts[name.casefold()] == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    ]


def _config_of(source):
    text = str(source)
    path = find_file(text) if "://" in text else pathlib.Path(source).expanduser()
    if path.is_dir():
        return read_config(path)
    return read_config(path.parent) if has_configuration(path) or path.suffix == ".json" else {}
