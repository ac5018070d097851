"""Rules for the names of classes of datasets, runs and exports."""

import unicodedata


def check_class_names(names, what="`class_names`", num_classes=None):
    """Check that the names of classes are distinct, also to the eye.

    Args:
        names: list or tuple of strings.
        what: what the names are, for the message.
        num_classes: number of classes that there must be; `None` for any number from 2 on.

    Returns:
        A tuple of the names.

    Raises:
        ValueError: if there are too few or too many names; or a name is no string, empty, of
            several lines or not in UTF-8; or two names look alike: they are equal without case,
            spaces around them and characters that are not printed.

    Example:
    >>> from keras_vit.core.class_names import check_class_names
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    >>> check_class_names(["cat", "Cat"])
    Traceback (most recent call last):
    ValueError: `class_names` must differ by more than case. Received: 'cat' and 'Cat'
    """
    is_list = isinstance(names, (list, tuple))
    if not is_list or (num_classes is not None and len(names) != num_classes):
        raise ValueError(
            f"{what} must be a list or tuple that names {num_classes or 'all'} classes. "
            f"Received: {type(names).__name__} {names!r:.200}"
        )
    for name in names:
        if not _is_line(name):
            raise ValueError(
                f"{what} must be strings of one line that are not empty, of characters that "
                f"UTF-8 has. Received: {name!r} among them"
            )
    if len(names) < 2:
        raise ValueError(f"{what} must have at least two classes. Received: {list(names)!r}")
    seen = {}
    for name in names:
        if (other := seen.get(_looks(name))) is not None:
            raise ValueError(f"{what} must {_rule(name, other)}. Received: {other!r} and {name!r}")
        seen[_looks(name)] = name
    return tuple(names)


def _looks(name):
    """Return what is seen of a name, in one spelling, without case and format characters."""
    printed = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", printed).casefold()).strip()


def _rule(name, other):
    if name == other:
        return "each be there once"
    if name.casefold() == other.casefold():
        return "differ by more than case"
    return f"not look alike, as {other!a} and {name!a} do"


def _is_line(name):
    try:
        # A separator of Unicode starts a new line too, also at the end.
        is_one_line = isinstance(name, str) and len(f"{name}.".encode().decode().splitlines()) == 1
    except UnicodeEncodeError:
        return False
    return is_one_line and bool(_looks(name))
