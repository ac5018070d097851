"""What the names of classes must be, wherever a dataset, a run or an export begins."""


def check_class_names(names, what="`class_names`", num_classes=None):
    """Check that classes can be told apart by their names, in files and by people.

    Args:
        names: list or tuple of strings.
        what: what the names are, for the message.
        num_classes: number of classes that there must be; `None` for any number from 2 on.

    Returns:
        A tuple of the names.

    Raises:
        ValueError: if there are too few or too many names; or a name is no string, empty, of
            several lines or not in UTF-8; or two names are equal when case is ignored.

    Example:
    >>> from keras_vit.core.class_names import check_class_names
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    >>> check_class_names(["cat", "Cat"])
    Traceback (most recent call last):
    ValueError: `class_names` must differ by more than case. Received: 'cat' and 'Cat'
    """
    if isinstance(names, str) or (num_classes is not None and len(names) != num_classes):
        raise ValueError(
            f"{what} must be a list that names {num_classes or 'all'} classes. "
            f"Received: {names!r:.200}"
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
        other = seen.get(name.casefold())
        if other is not None:
            rule = "each be there once" if other == name else "differ by more than case"
            raise ValueError(f"{what} must {rule}. Received: {other!r} and {name!r}")
        seen[name.casefold()] = name
    return tuple(names)


def _is_line(name):
    try:
        # A separator of Unicode starts a new line too, also at the end.
        is_one_line = isinstance(name, str) and len(f"{name}.".encode().decode().splitlines()) == 1
    except UnicodeEncodeError:
        return False
    return is_one_line and bool(name.strip())
