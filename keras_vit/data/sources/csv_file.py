"""Datasets of image files that a CSV file lists: with any number of labels, or with values."""

import csv
import math
import pathlib

import numpy as np

from keras_vit.core.text import name_some
from keras_vit.data.sources.folder import files_of_split, files_source
from keras_vit.data.sources.source import select_classes
from keras_vit.data.sources.splits import SPLITS

# Names of the second column of a header that never make a dataset of values.
_LABELS = ("label", "labels")


def csv_file(path, split, classes=None, shard=(0, 1)):
    """Find the images of a split in a CSV file with lines such as `cats/1.jpg,cat outdoors`.

    Paths are relative to the folder of the CSV file, and serve as ids; missing images are skipped.
    An image may have no label. Labels are separated by spaces, or by `|` or `;` if any line
    contains this character. The first line is a header if its path has no suffix and does not
    exist. If there is a header such as `image,age,weight` and all other fields are finite numbers,
    the dataset has values instead of labels, and the header has their names. A header
    `image,labels` always has labels. If `path` is a file, its images are divided into splits like a
    folder of images. If it is a directory, it has `train.csv`, and optionally `validation.csv` and
    `test.csv`. Images without labels in `classes` are kept. Other arguments and errors are as in
    `folder`.
    """
    path = pathlib.Path(path).expanduser()
    present = {"train": path}
    if path.is_dir():
        files = {name: path / f"{name}.csv" for name in SPLITS}
        present = {name: file for name, file in files.items() if name == "train" or file.is_file()}
    root = present["train"].parent
    tables = {name: _read(file) for name, file in present.items()}
    has_values, rows = _has_values(path, tables), {}
    for name, (_, texts) in tables.items():
        (images,) = files_of_split(root, present, name, {".": list(texts)}, split).values()
        rows |= {image: texts[image] for image in images}
    if has_values:
        names, labels = list(tables["train"][0]), [[*map(float, row)] for row in rows.values()]
    else:
        names, labels = _multi_hot(path, tables, rows)
    labels = np.array(labels, "float32").reshape(len(rows), len(names))
    if classes is not None:
        kept, _, names = select_classes(np.arange(len(names)), names, classes)
        labels = labels[:, kept]
    paths = [str(root / image) for image in rows]
    options = {"has_no_splits": present == {"train": path}, "samples_by_id": True}
    options["has_values"] = has_values
    return files_source(root, split, paths, labels, names, shard, **options)


def _has_values(path, tables):
    """Whether the columns are values by the headers of all files; several columns must be."""
    headers = {header for header, _ in tables.values()}
    if {header and ",".join(header).casefold() for header in headers} <= {None, *_LABELS}:
        return False
    wrong = [
        f"{image},{','.join(row)}"
        for _, texts in tables.values()
        for image, row in texts.items()
        if not all(map(_is_number, row))
    ]
    has_values = len(headers) == 1 and not wrong
    if not has_values and any(len(header or "1") > 1 for header in headers):
        raise ValueError(
            "Several columns of values in `csv:PATH` must be finite numbers, with the same header "
            f"in all files. Received: {str(path)!r} with {name_some(wrong or [*map(str, headers)])}"
        )
    return has_values


def _is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _multi_hot(path, tables, rows):
    """Return the names of all labels, and a list of zeros and ones for each image of `rows`."""
    texts = "".join(text for _, texts in tables.values() for (text,) in texts.values())
    separator = next((mark for mark in "|;" if mark in texts), None)

    def split(fields):
        return set(map(str.strip, fields[0].split(separator))) - {""}

    names, *others = (
        sorted(set().union(*map(split, texts.values()))) for _, texts in tables.values()
    )
    if unknown := sorted(set().union(*others) - set(names)):
        raise ValueError(
            f"The labels of `csv:PATH` must be those of `train`, {', '.join(names)}. "
            f"Received: {', '.join(unknown)} in {str(path)!r}"
        )
    return names, [[name in labels for name in names] for labels in map(split, rows.values())]


def _read(file):
    """Return `(header, texts)` of a CSV file.

    `header` is a tuple of the names of the columns after the path, or `None`. `texts` is a
    dictionary from the path of each image to a tuple of the texts of these columns.
    """
    with file.open(encoding="utf-8-sig", newline="") as stream:
        try:
            rows = list(csv.reader(stream, strict=True))
        except csv.Error as error:
            raise ValueError(
                f"A CSV file must be well-formed. Received: {str(file)!r}, {error}"
            ) from error
    header, texts = None, {}
    for number, row in enumerate(rows, 1):
        image = pathlib.PurePosixPath(row[0].strip() if row else "")
        is_header = not image.suffix and not (file.parent / image).exists()
        if number == 1 and is_header and row:
            header = tuple(map(str.strip, row[1:])) or None
            continue
        if not row:
            continue
        if len(row) != 1 + len(header or "1") or str(image) in texts:
            raise ValueError(
                "`csv:PATH` must have one line for each image: its path, relative to the "
                "folder of the CSV file, and its labels, as in `cats/1.jpg,cat outdoors`; or, "
                "below a header such as `image,age,weight`, its path and its values. "
                f"Received: line {number} of {str(file)!r}, {','.join(row)!r}"
            )
        texts[str(image)] = tuple(row[1:])
    return header, texts
