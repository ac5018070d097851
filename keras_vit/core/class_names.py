"""Checks of the class names of datasets, runs and exports."""

import re
import unicodedata

# Invisible characters that are neither control nor format characters: joiners, fillers, variation
# selectors and the Braille pattern without dots.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# Cyrillic and Greek letters, and Latin letters of the same shape.
_LOOK_ALIKES = str.maketrans(
    "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423"
    "\u0430\u0441\u0435\u0456\u0458\u043e\u0440\u0455\u0445\u0443"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03b1\u03bd\u03bf\u03c1",
    "ABCEHIJKMOPSTXYaceijopsxyABEZHIKMNOPTYXavop",
)


def check_class_names(names, what="`class_names`", num_classes=None):
    """Check that class names are valid, and that no two look alike.

    Args:
        names: list, tuple or array of strings; dictionaries and sets are refused, as their order
            may differ from that of the classes.
        what: description of the names for the error message.
        num_classes: required number of names; `None` for at least 2.

    Returns:
        A tuple of the names.

    Raises:
        ValueError: if the number of names is wrong; a name is not a string, is empty, has several
            lines or cannot be encoded in UTF-8; or two names look alike. They look alike if they
            differ only by case, repeated or outer spaces, invisible characters, or Cyrillic or
            Greek look-alikes of Latin letters.

    Example:
    >>> from keras_vit.core.class_names import check_class_names
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    >>> check_class_names(["cat", "Cat"])
    Traceback (most recent call last):
    ValueError: `class_names` must differ by more than case. Received: 'cat' and 'Cat'
    """
    names = names.tolist() if hasattr(names, "tolist") else names
    is_list = isinstance(names, (list, tuple))
    if not is_list or (num_classes is not None and len(names) != num_classes):
        raise ValueError(
            f"{what} must be a list or tuple that names {num_classes or 'all'} classes. "
            f"Received: {type(names).__name__} {names!r:.200}"
        )
    for name in names:
        if not _is_line(name):
            raise ValueError(
                f"{what} must be strings of one line that are not empty and are valid in UTF-8. "
                f"Received: {name!r} among them"
            )
    if len(names) < 2:
        raise ValueError(f"{what} must have at least two classes. Received: {list(names)!r}")
    seen = {}
    for name in names:
        as_latin = unicodedata.normalize("NFKD", name).translate(_LOOK_ALIKES)
        views = {_looks(name), _looks(as_latin)}
        if (other := next((seen[view] for view in views if view in seen), None)) is not None:
            raise ValueError(f"{what} must {_rule(name, other)}. Received: {other!r} and {name!r}")
        seen |= dict.fromkeys(views, name)
    return tuple(names)


def _looks(name):
    """Return the visible part of a name, normalized and without case."""
    shown = "".join(filter(_is_shown, name))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())
    return " ".join(folded.split())


def _is_shown(letter):
    is_hidden = _INVISIBLE.match(letter) or unicodedata.category(letter) in ("Cc", "Cf")
    return letter.isspace() or not is_hidden


def _rule(name, other):
    if name == other:
        return "each be there once"
    if name.casefold() == other.casefold():
        return "differ by more than case"
    return f"not look alike, as {other!a} and {name!a} do"


def _is_line(name):
    try:
        # Unicode's separators start a new line too, even at the end.
        is_one_line = isinstance(name, str) and len(f"{name}.".encode().decode().splitlines()) == 1
    except UnicodeEncodeError:
        return False
    return is_one_line and bool(_looks(name))
