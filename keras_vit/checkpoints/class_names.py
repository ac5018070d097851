"""Names of classes in the `config.json` of transformers and timm."""

import collections
import pathlib

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import read_config
from keras_vit.checkpoints.download import cache_path


def read_class_names(source, num_classes):
    """Read the names of classes from the `config.json` next to the weights of a model.

    Args:
        source: path, address or name that the model was loaded from.
        num_classes: number of outputs of the model.

    Returns:
        A list of names that are all different, or `None` if there are none for these classes. A
        name of several classes is followed by the number of the class.
    """
    config = _config_of(source)
    # transformers, and timm.
    labels = config.get("id2label") or config.get("label_names") or {}
    if isinstance(labels, list):
        labels = dict(enumerate(labels))
    names = [None]
    if isinstance(labels, dict) and len(labels) == num_classes:
        names = [labels.get(str(index), labels.get(index)) for index in range(num_classes)]
    if not labels or names == default_names(num_classes):
        return None
    if not all(isinstance(name, str) for name in names):
        logger.warning(
            "The config.json of %s does not name the %d classes of the model: its names are left "
            "out",
            *(source, num_classes),
        )
        return None
    counts = collections.Counter(name.casefold() for name in names)
    return [
        name if counts[name.casefold()] == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    ]


def default_names(num_classes):
    """The names that transformers gives to classes without names."""
    return [f"LABEL_{index}" for index in range(num_classes)]


def _config_of(source):
    text = str(source)
    path = cache_path(text) if "://" in text else pathlib.Path(source).expanduser()
    if path.is_dir():
        return read_config(path)
    return read_config(path.parent) if path.suffix in (".safetensors", ".json") else {}
