"""Image files with several labels each, listed in CSV files."""

import csv
import pathlib

import numpy as np

from keras_vit.data.sources.folder import files_of_split, files_source
from keras_vit.data.sources.source import select_classes
from keras_vit.data.sources.splits import SPLITS


def csv_file(path, split, classes=None, shard=(0, 1)):
    """Find the images of a split in a CSV file with lines such as `cats/1.jpg,cat outdoors`.

    A path is relative to the folder of the CSV file, and is the id; a missing file is skipped.
    Labels, if any, are separated by spaces, or by the `|` or `;` that some line has. A first line
    whose path has no suffix and does not exist is a header. Images are divided as those of a
    folder; a directory has `train.csv` and perhaps `validation.csv` and `test.csv` instead. Images
    without a label of `classes` are kept. Other arguments and errors are as in `folder`.
    """
    path = pathlib.Path(path).expanduser()
    given = {"train": path}
    if path.is_dir():
        files = {name: path / f"{name}.csv" for name in SPLITS}
        given = {name: file for name, file in files.items() if name == "train" or file.is_file()}
    root = given["train"].parent
    rows = {name: _read(file) for name, file in given.items()}
    texts = "".join(text for part in rows.values() for text in part.values())
    separator = next((mark for mark in "|;" if mark in texts), None)
    known, found = [], {}
    for name, part in rows.items():
        labels = [set(map(str.strip, text.split(separator))) - {""} for text in part.values()]
        known.append(sorted(set().union(*labels)))
        (kept,) = files_of_split(root, given, name, {".": list(part)}, split).values()
        own = dict(zip(part, labels, strict=True))
        found |= {image: own[image] for image in kept}
    names, *others = known
    if unknown := sorted(set().union(*others) - set(names)):
        raise ValueError(
            f"The labels of `csv:PATH` must be those of `train`, {', '.join(names)}. "
            f"Received: {', '.join(unknown)} in {str(path)!r}"
        )
    if classes is not None:
        _, _, names = select_classes(np.arange(len(names)), names, classes)
    paths = [str(root / image) for image in found]
    labels = np.array([[name in own for name in names] for own in found.values()], "float32")
    options = {"has_no_splits": given == {"train": path}, "samples_by_id": True}
    return files_source(root, split, paths, labels, names, shard, **options)


def _read(file):
    """Return a dictionary from the images of a CSV file to the text of their labels."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        try:
            rows = list(csv.reader(stream, strict=True))
        except csv.Error as error:
            raise ValueError(
                f"A CSV file must be well-formed. Received: {str(file)!r}, {error}"
            ) from error
    found = {}
    for number, row in enumerate(rows, 1):
        image = pathlib.PurePosixPath(row[0].strip() if row else "")
        is_header = not image.suffix and not (file.parent / image).exists()
        if not row or (number == 1 and is_header):
            continue
        if len(row) != 2 or str(image) in found:
            raise ValueError(
                "`csv:PATH` must have one line for each image: its path, relative to the "
                "folder of the file, and its labels, as in `cats/1.jpg,cat outdoors`. "
                f"Received: line {number} of {str(file)!r}, {','.join(row)!r}"
            )
        found[str(image)] = row[1]
    return found
