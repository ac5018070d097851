"""Names that several parts of the package spell."""

import pathlib

# Kinds of datasets that are divided if they have no splits.
DIVIDED = ("folder", "tfrecord")
# Prefix of datasets divided as in versions before 0.2.
BY_POSITION = "by-position:"


def absolute_name(data):
    """The name of a dataset, such that it is found from any working directory.

    Example:
    >>> from keras_vit.core.choices import absolute_name
    >>> absolute_name("cifar10"), absolute_name("folder:/photos/../photos")
    ('cifar10', 'folder:/photos')
    """
    prefix = BY_POSITION if data.startswith(BY_POSITION) else ""
    kind, _, path = data.removeprefix(BY_POSITION).partition(":")
    if kind not in DIVIDED:
        return data
    return f"{prefix}{kind}:{pathlib.Path(path).expanduser().resolve()}"
