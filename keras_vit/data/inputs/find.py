"""Find the images to predict that a user names."""

import collections
import itertools
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.arguments import as_objects
from keras_vit.core.choices import PREDICTIONS_RECORD
from keras_vit.data.digest import data_digest
from keras_vit.data.images.decoding import decode, read_orientation, turn_upright
from keras_vit.data.inputs.rows import ImageRows, parquet_rows, rows_of
from keras_vit.data.loading import find_every, find_source
from keras_vit.data.sources.folder import id_of, list_images
from keras_vit.data.sources.kinds import absolute_name, find_kind
from keras_vit.data.sources.paper import DATASETS

_PARQUET = ".parquet"


def is_dataset(name):
    """Whether a name is that of a dataset, as in `keras_vit.data.load`, and not of a path."""
    path = pathlib.Path(name).expanduser()
    # Predictions of a dataset may be in a directory of its name.
    is_path = path.exists() and not (path / PREDICTIONS_RECORD).exists()
    return not is_path and (name in DATASETS or find_kind(name)[0] is not None)


def absolute_names(names):
    """Return the names of images with absolute paths, for use in any working directory."""
    return tuple(
        absolute_name(name) if is_dataset(name) else _absolute_path(name)
        for name in map(str, names)
    )


def _absolute_path(name):
    # A link keeps its name, unless the path leads through the folder above.
    path = pathlib.Path(name).expanduser()
    return str(path.resolve() if ".." in path.parts else path.absolute())


def find_images(names, split=None, data_dir=None):
    """Find the images that a user names.

    Args:
        names: list of image files, patterns of them, and folders, whose images at every level are
            taken; or the same of Parquet files; or the name of one dataset, as in
            `keras_vit.data.load`.
        split: split of the dataset, as in `load`; `None` for all.
        data_dir: as in `load`.

    Returns:
        `ImageRows`. Ids of images in one folder are paths relative to it; those of files are their
        paths.

    Raises:
        ValueError: if there are no images, or a split is given for images that have none.

    Example:
    >>> from keras_vit.data.inputs.find import find_images
    >>> images = find_images(["digits"], split="test")
    >>> images.num_images, images.columns(0, 2)["label"].tolist()
    (359, ['0', '3'])
    """
    names = [str(name) for name in names]
    if any(map(is_dataset, names)):
        if len(names) > 1:
            raise ValueError(f"`images` must be one dataset. Received: {', '.join(names)}")
        (name,) = names
        source = (
            find_source(name, split, data_dir=data_dir) if split else find_every(name, data_dir)
        )
        return rows_of(source)
    if split is not None:
        raise ValueError(
            "`split` is for datasets, such as `folder:PATH`; of a folder or files all images are "
            f"taken. Received: split={split!r}, images={names}"
        )
    tables = _parquet_files(names)
    images = parquet_rows(tables) if tables else _image_files(names)
    if not images.num_images:
        raise ValueError(f"`images` must name an image. Received: {', '.join(names)}, without any")
    return images


def _existing(name):
    """Return the paths that a name means: itself, or the files of a pattern."""
    path = pathlib.Path(name).expanduser()
    matches = [] if path.exists() else sorted(tf.io.gfile.glob(str(path)))
    return [pathlib.Path(match) for match in matches] or [path]


def _parquet_files(names):
    """Return the Parquet files that the names mean, or none if they mean images."""
    found = []
    for path in itertools.chain.from_iterable(map(_existing, names)):
        files = sorted(path.rglob(f"*{_PARQUET}")) if path.is_dir() else [path]
        tables = [file for file in files if file.suffix == _PARQUET]
        has_images = bool(tables) and path.is_dir() and bool(list_images(path)[0])
        found += [*tables, *([None] if has_images or not tables else [])]
    if None in found and any(found):
        raise ValueError(f"`images` must be Parquet files or images, not both. Received: {names}")
    return [] if None in found else found


def _image_files(names):
    paths, ids, left_out = [], [], collections.Counter()
    is_only = len(names) == 1
    for name in names:
        for path in _existing(name):
            if not path.is_dir():
                paths.append(str(path))
                ids.append(str(path) if path != pathlib.Path(name).expanduser() else name)
                continue
            found, others = list_images(path)
            paths += found
            ids += [id_of(each, path) if is_only else each for each in found]
            left_out += others

    def read(start, stop):
        return {"path": as_objects(paths[start:stop])}

    def digest():
        return data_digest((), zip(ids, map(pathlib.Path, paths), strict=True), len(paths))

    return ImageRows(len(paths), ids.__getitem__, read, digest, left_out=left_out)


def check_existing(names):
    """Raise `ValueError` for a name of images that means nothing."""
    for name in names:
        if not is_dataset(name) and not all(path.exists() for path in _existing(name)):
            raise ValueError(f"`images` must exist. Received: {name!r}, which does not")


def thumbnails(images, ids, size=160):
    """Return small pictures of some of the images.

    Args:
        images: `ImageRows`.
        ids: set of the ids of those to read.
        size: greatest length of a side, in pixels.

    Returns:
        A dictionary from ids to uint8 arrays `(height, width, 3)`.
    """
    found = {}
    for number in range(images.num_images):
        if (id := images.find_id(number)) in ids:
            picture = Image.fromarray(_pixels(images.read(number, number + 1)))
            picture.thumbnail((size, size))
            found[id] = np.asarray(picture)
    return found


def _pixels(columns):
    if "image" in columns:
        return columns["image"][0]
    encoded = columns["bytes"][0] if "bytes" in columns else tf.io.read_file(columns["path"][0])
    return turn_upright(decode(encoded), read_orientation(encoded)).numpy()
