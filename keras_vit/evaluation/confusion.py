"""Tables of a confusion matrix: one row per class, and a CSV file."""

import csv

from keras_vit.core.files import replacing
from keras_vit.core.text import csv_text
from keras_vit.evaluation.metrics import most_frequent_mistakes

COLUMNS = ("class", "images", "accuracy", "most frequent mistake")


def class_rows(matrix, names):
    """Yield a tuple of strings per class, under `COLUMNS`.

    Example:
    >>> list(class_rows(np.array([[1, 1], [0, 1]]), ["cat", "dog"]))
    [('cat', '2', '50.00%', 'dog (1)'), ('dog', '1', '100.00%', '-')]
    """
    rows = zip(names, matrix, *most_frequent_mistakes(matrix), strict=True)
    for index, (name, row, mistake, count) in enumerate(rows):
        images = row.sum()
        yield (
            name,
            f"{images}",
            f"{row[index] / images:.2%}" if images else "-",
            f"{names[mistake]} ({count})" if count else "-",
        )


def write_confusion(matrix, names, path):
    """Write a confusion matrix as CSV: one row per class, one column per prediction, with names."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = list(map(csv_text, names))
        writer.writerow(["class", *names])
        writer.writerows([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
