"""The check of the class names of datasets, models and exports."""


def check_class_names(names, what="`class_names`", num_classes=None):
    """Return class names as a tuple, checked to be valid and different.

    Args:
        names: list, tuple or array of strings; dictionaries and sets are refused, as their order
            may differ from that of the classes.
        what: description of the names for the error message.
        num_classes: required number of names; `None` for at least 2.

    Raises:
        ValueError: if the number of names is wrong; a name is not a string, is empty, has several
            lines or cannot be encoded in UTF-8, in which runs and exports are recorded; or two
            names differ only by case or spaces.

    Example:
    >>> from keras_vit.core.class_names import check_class_names
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    >>> check_class_names(["cat", "Cat"])
    Traceback (most recent call last):
    ValueError: `class_names` must differ by more than case and spaces. Received: 'cat' and 'Cat'
    """
    names = names.tolist() if hasattr(names, "tolist") else names
    is_list = isinstance(names, (list, tuple))
    if not is_list or len(names) < 2 or num_classes not in (None, len(names)):
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
