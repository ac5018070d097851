"""Multi-label datasets of image files that a CSV file lists."""

import csv
import pathlib

import numpy as np

from keras_vit.data.sources.folder import files_of_split, files_source
from keras_vit.data.sources.source import select_classes
from keras_vit.data.sources.splits import SPLITS


def csv_file(path, split, classes=None, shard=(0, 1)):
    """Find the images of a split in a CSV file with lines such as `cats/1.jpg,cat outdoors`.

    Paths are relative to the folder of the CSV file, and serve as ids; missing images are skipped.
    An image may have no label. Labels are separated by spaces, or by `|` or `;` if any line
    contains this character. The first line is a header if its path has no suffix and does not
    exist. If `path` is a file, its images are divided into splits like a folder of images. If it is
    a directory, it has `train.csv`, and optionally `validation.csv` and `test.csv`. Images without
    labels in `classes` are kept. Other arguments and errors are as in `folder`.
    """
    path = pathlib.Path(path).expanduser()
    present = {"train": path}
    if path.is_dir():
        files = {name: path / f"{name}.csv" for name in SPLITS}
        present = {name: file for name, file in files.items() if name == "train" or file.is_file()}
    root = present["train"].parent
    rows = {name: _read(file) for name, file in present.items()}
    texts = "".join(text for texts in rows.values() for text in texts.values())
    separator = next((mark for mark in "|;" if mark in texts), None)
    label_sets, labels_of = [], {}
    for name, texts in rows.items():
        labels = [set(map(str.strip, text.split(separator))) - {""} for text in texts.values()]
        label_sets.append(sorted(set().union(*labels)))
        (images,) = files_of_split(root, present, name, {".": list(texts)}, split).values()
        by_image = dict(zip(texts, labels, strict=True))
        labels_of |= {image: by_image[image] for image in images}
    names, *others = label_sets
    if unknown := sorted(set().union(*others) - set(names)):
        raise ValueError(
            f"The labels of `csv:PATH` must be those of `train`, {', '.join(names)}. "
            f"Received: {', '.join(unknown)} in {str(path)!r}"
        )
    if classes is not None:
        _, _, names = select_classes(np.arange(len(names)), names, classes)
    paths = [str(root / image) for image in labels_of]
    multi_hot = [[name in image_labels for name in names] for image_labels in labels_of.values()]
    labels = np.array(multi_hot, "float32")
    options = {"has_no_splits": present == {"train": path}, "samples_by_id": True}
    return files_source(root, split, paths, labels, names, shard, **options)


def _read(file):
    """Return a dictionary from the path of each image of a CSV file to the text of its labels."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        try:
            rows = list(csv.reader(stream, strict=True))
        except csv.Error as error:
            raise ValueError(
                f"A CSV file must be well-formed. Received: {str(file)!r}, {error}"
            ) from error
    texts = {}
    for number, row in enumerate(rows, 1):
        image = pathlib.PurePosixPath(row[0].strip() if row else "")
        is_header = not image.suffix and not (file.parent / image).exists()
        if not row or (number == 1 and is_header):
            continue
        if len(row) != 2 or str(image) in texts:
            raise ValueError(
                "`csv:PATH` must have one line for each image: its path, relative to the "
                "folder of the CSV file, and its labels, as in `cats/1.jpg,cat outdoors`. "
                f"Received: line {number} of {str(file)!r}, {','.join(row)!r}"
            )
        texts[str(image)] = row[1]
    return texts
