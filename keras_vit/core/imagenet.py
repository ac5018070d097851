"""The names of ImageNet's classes."""

import collections
import functools
import importlib.resources

# `label_files/README.md` names the sources of the lists and what they were compared with.
LABEL_FILES = {1000: "imagenet2012.txt", 21843: "imagenet21k.txt"}


@functools.cache
def read_labels(num_classes):
    """Return the pairs `(synset, name)` of 1000 or 21843 classes, in the order of the outputs."""
    folder = importlib.resources.files("keras_vit.core") / "label_files"
    lines = (folder / LABEL_FILES[num_classes]).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines)


@functools.cache
def imagenet_class_names(num_classes):
    """Return unique names of 1000 or 21843 classes.

    If several classes have the same name, as the two cranes, the synset follows it.

    Args:
        num_classes: 1000 for ImageNet-2012, 21843 for ImageNet-21k.

    Returns:
        A list of strings, in the order of a model's outputs.

    Example:
    >>> from keras_vit.core.imagenet import imagenet_class_names
    >>> names = imagenet_class_names(1000)
    >>> names[0], names[134], names[517]
    ('tench', 'crane_n02012849', 'crane_n03126707')
    """
    labels = read_labels(num_classes)
    counts = collections.Counter(name.casefold() for _, name in labels)
    return [name if counts[name.casefold()] == 1 else f"{name}_{synset}" for synset, name in labels]


def as_words(names):
    """Return ImageNet's words, a list, for all of its synsets; other names as they are."""
    if len(names) not in LABEL_FILES:
        return list(names)
    synsets = [synset for synset, _ in read_labels(len(names))]
    return imagenet_class_names(len(names)) if list(names) == synsets else list(names)
