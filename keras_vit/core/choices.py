"""Names of datasets that several parts of the package parse."""

import pathlib

# Kinds of datasets that are divided into splits if they have none.
DIVIDED = ("folder", "tfrecord")
# Prefix of datasets divided as in versions before 0.2.
BY_POSITION = "by-position:"


def absolute_name(data):
    """Return the name of a dataset with an absolute path, for use in any working directory.

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
