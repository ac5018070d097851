"""Text of unknown origin, for a terminal and for CSV files, and numbers as text."""

import re
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


def name_some(ids, count=3):
    """Return the first of some ids as printable text, with dots if there are more.

    Example:
    >>> from keras_vit.core.text import name_some
    >>> name_some(["a", "b", "c"], count=2)
    'a, b, ...'
    """
    return ", ".join([*map(printable, ids[:count]), *["..."][: len(ids) > count]])


# What a spreadsheet runs as a formula: not a number, also after the apostrophes of `csv_text`.
_FORMULA = re.compile(r"'*(?![+-][\d.]+(e[+-]?\d+)?$)[=+\-@\t\r]", re.IGNORECASE)


def csv_text(value):
    """Return a cell of a CSV file: an apostrophe before text that a spreadsheet would run.

    Reference:
        OWASP, "CSV Injection".

    Example:
    >>> from keras_vit.core.text import csv_text
    >>> csv_text("=1+1"), csv_text("cat"), csv_text(-0.5)
    ("'=1+1", 'cat', -0.5)
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value)
    return f"'{value}" if is_formula else value


def from_csv(text):
    """Return the text that `csv_text` was given.

    Example:
    >>> from keras_vit.core.text import csv_text, from_csv
    >>> from_csv(csv_text("=1+1"))
    '=1+1'
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


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
