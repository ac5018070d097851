"""Text for a terminal."""

import unicodedata


def printable(text):
    r"""Escape control characters, which would change the terminal.

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
