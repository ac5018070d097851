"""Class names, and text that is safe to print."""

import collections
import functools
import importlib.resources
import statistics
import unicodedata


def printable(text):
    r"""Escape control characters, which could change the state of the terminal.

    Args:
        text: string of unknown origin.

    Returns:
        A string.

    Example:
    >>> from keras_vit.core.text import printable
    >>> print(printable("cat" + chr(27)))
    cat\x1b
    """
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) == "Cc" else letter for letter in text
    )


def name_some(ids, count=3):
    """Return the first `count` ids as printable text, with dots if there are more.

    Example:
    >>> from keras_vit.core.text import name_some
    >>> name_some(["a", "b", "c"], count=2)
    'a, b, ...'
    """
    return ", ".join([*map(printable, ids[:count]), *["..."][: len(ids) > count]])


def mean_and_deviation(values, decimals):
    """Return the mean and the sample standard deviation (n - 1) of values as a string.

    For a single value, the string is only the mean.

    Example:
    >>> from keras_vit.core.text import mean_and_deviation
    >>> mean_and_deviation([0.5, 0.75], 4)
    '0.6250 ± 0.1768'
    """
    values = list(map(float, values))
    spread = f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{decimals}f}{spread}"


def check_class_names(names, what="`class_names`", num_classes=None):
    """Return class names as a tuple, or raise an error if they are not valid and unique.

    Args:
        names: list, tuple or array of strings. Dictionaries and sets are refused, because their
            order may not be the order of the classes.
        what: description of the names for the error message.
        num_classes: required number of names, at least 1; `None` for at least 2.

    Raises:
        ValueError: if the number of names is wrong; a name is not a string, is empty, has several
            lines or cannot be encoded in UTF-8, the encoding of our files; or two names differ only
            by case or spaces.

    Example:
    >>> from keras_vit.core.text import check_class_names
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    >>> check_class_names(["cat", "Cat"])
    Traceback (most recent call last):
    ValueError: `class_names` must differ by more than case and spaces. Received: 'cat' and 'Cat'
    """
    names = names.tolist() if hasattr(names, "tolist") else names
    is_list = isinstance(names, (list, tuple))
    if not is_list or len(names) < (num_classes or 2) or num_classes not in (None, len(names)):
        raise ValueError(
            f"{what} must be a list or tuple that names {num_classes or 'at least two'} classes. "
            f"Received: {type(names).__name__} {names!r:.200}"
        )
    seen = {}
    for number, name in enumerate(names):
        lines = name.encode(errors="ignore").decode().splitlines() if isinstance(name, str) else []
        if lines != [name] or not name.strip():
            raise ValueError(
                f"{what} must be strings of one line that are not empty and are valid in UTF-8. "
                f"Received: {name!r} among them"
            )
        other = seen.setdefault(" ".join(name.split()).casefold(), number)
        if other != number:
            raise ValueError(
                f"{what} must differ by more than case and spaces. "
                f"Received: {names[other]!r} and {name!r}"
            )
    return tuple(names)


# Label files by number of classes. `label_files/README.md` describes their sources and checks.
LABEL_FILES = {1000: "imagenet2012.txt", 21843: "imagenet21k.txt"}


@functools.cache
def read_labels(num_classes):
    """Return `(synset, name)` of ImageNet's 1000 or 21843 classes, in the order of the outputs."""
    folder = importlib.resources.files("keras_vit.core") / "label_files"
    lines = (folder / LABEL_FILES[num_classes]).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines)


@functools.cache
def imagenet_class_names(num_classes):
    """Return unique names of ImageNet's 1000 or 21843 classes.

    A name that several classes have, such as "crane", is followed by the synset.

    Args:
        num_classes: 1000 for ImageNet-2012, 21843 for ImageNet-21k.

    Returns:
        A list of strings, in the order of a model's outputs.

    Example:
    >>> from keras_vit.core.text import imagenet_class_names
    >>> names = imagenet_class_names(1000)
    >>> names[0], names[134], names[517]
    ('tench', 'crane_n02012849', 'crane_n03126707')
    """
    labels = read_labels(num_classes)
    counts = collections.Counter(name.casefold() for _, name in labels)
    return [name if counts[name.casefold()] == 1 else f"{name}_{synset}" for synset, name in labels]


def as_words(names):
    """Return ImageNet's class names if `names` are all its synsets; else return `names`."""
    if len(names) not in LABEL_FILES:
        return list(names)
    synsets = [synset for synset, _ in read_labels(len(names))]
    return imagenet_class_names(len(names)) if list(names) == synsets else list(names)
