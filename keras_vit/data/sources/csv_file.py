"""Image files with several labels each, listed in CSV files."""

import csv
import pathlib

import numpy as np

from keras_vit.data.sources.base import take_classes
from keras_vit.data.sources.division import divide
from keras_vit.data.sources.folder import as_source, shares_of
from keras_vit.data.sources.splits import SPLITS, split_names


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
        shares = shares_of(given, name)
        splits = dict.fromkeys(part, *shares) if len(shares) == 1 else None
        splits = splits or divide(root, {".": list(part)}, shares)
        pairs = zip(part, labels, strict=True)
        found |= {image: own for image, own in pairs if splits[image] in split_names(split)}
    names, *others = known
    if unknown := sorted(set().union(*others) - set(names)):
        raise ValueError(
            f"The labels of `csv:PATH` must be those of `train`, {', '.join(names)}. "
            f"Received: {', '.join(unknown)} in {str(path)!r}"
        )
    if classes is not None:
        _, _, names = take_classes(np.arange(len(names)), names, classes)
    paths = [str(root / image) for image in found]
    labels = np.array([[name in own for name in names] for own in found.values()], "float32")
    options = {"has_no_splits": given == {"train": path}, "part_by_id": True}
    return as_source(root, split, paths, labels, names, None, shard, **options)


def _read(file):
    """Return a dictionary from the images of a CSV file to the text of their labels."""
    found = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(csv.reader(stream, strict=True)):
                image = pathlib.PurePosixPath(row[0].strip() if row else "")
                is_header = not image.suffix and not (file.parent / image).exists()
                if not row or (number == 0 and is_header):
                    continue
                problem = _problem(row, image, found)
                if problem:
                    raise ValueError(f"line {number + 1}, {','.join(row)!r}: {problem}")
                found[str(image)] = row[1]
        if not found:
            raise ValueError("no lines with an image")
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(
            "`csv:PATH` must name a CSV file in UTF-8 with a line for each image, once: its path, "
            "relative to the folder of the file, and its labels, as in `cats/1.jpg,cat outdoors`. "
            f"Received: {str(file)!r} ({error})"
        ) from error
    return found


def _problem(row, image, found):
    """Return what is wrong with a line of a CSV file, or `None`."""
    problems = {
        "an image in two lines": str(image) in found,
        "not two columns": len(row) != 2,
        "no path of an image": not image.name,
        "not a relative path": image.is_absolute(),
    }
    return next((problem for problem, is_there in problems.items() if is_there), None)
