"""Text for a terminal."""

import statistics
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


def mean_and_deviation(values, decimals):
    """Return the mean of some values and their standard deviation (n - 1) as a string.

    One value has no deviation.

    Example:
    >>> from keras_vit.core.text import mean_and_deviation
    >>> mean_and_deviation([0.5, 0.75], 4)
    '0.6250 ± 0.1768'
    """
    values = list(map(float, values))
    spread = f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{decimals}f}{spread}"
