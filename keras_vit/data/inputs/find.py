"""Find the images that a user names."""

import collections
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.data.datasets import find_every, find_source
from keras_vit.data.images.decoding import decode, read_orientation, turn_upright
from keras_vit.data.inputs.parquet import parquet_rows
from keras_vit.data.inputs.rows import ImageRows, rows_of
from keras_vit.data.sources.kinds import absolute_name, find_kind
from keras_vit.data.sources.listing import list_images
from keras_vit.data.sources.paper import DATASETS

_PARQUET = ".parquet"


def is_dataset(name):
    """Whether a name is that of a dataset, as in `keras_vit.data.load`, and not of a path."""
    is_path = pathlib.Path(name).expanduser().exists()
    return not is_path and (name in DATASETS or find_kind(name)[0] is not None)


def absolute_names(names):
    """Return the names of images with absolute paths, for use in any working directory."""
    return tuple(
        absolute_name(name) if is_dataset(name) else str(pathlib.Path(name).expanduser().absolute())
        for name in map(str, names)
    )


def find_images(names, split=None, data_dir=None):
    """Find the images that a user names.

    Args:
        names: list of image files and of folders, whose images at every level are taken; or of
            Parquet files, patterns of them and folders of them; or the name of one dataset, as in
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
    if not names:
        raise ValueError("`images` must name at least one file. Received: none")
    if any(map(is_dataset, names)):
        if len(names) > 1:
            raise ValueError(f"`images` must be one dataset. Received: {', '.join(names)}")
        source = find_source(*names, split, data_dir=data_dir) if split else None
        return rows_of(source or find_every(*names, data_dir))
    if split is not None:
        raise ValueError(
            "`split` is for datasets, such as `folder:PATH`; of a folder or files all images are "
            f"taken. Received: split={split!r}, images={names}"
        )
    tables = _parquet_files(names)
    return parquet_rows(tables) if tables else _image_files(names)


def _parquet_files(names):
    """Return the Parquet files that the names mean, or none if they mean images."""
    found = []
    for name in names:
        path = pathlib.Path(name).expanduser()
        files = sorted(path.glob(f"*{_PARQUET}")) if path.is_dir() else [path]
        if not path.exists():
            files = sorted(map(pathlib.Path, tf.io.gfile.glob(str(path))))
        found += [file for file in files if file.suffix == _PARQUET] or [None]
    if None in found and any(found):
        raise ValueError(f"`images` must be Parquet files or images, not both. Received: {names}")
    return [] if None in found else found


def _image_files(names):
    paths, ids, left_out = [], [], collections.Counter()
    folders = [name for name in names if pathlib.Path(name).expanduser().is_dir()]
    for name in names:
        path = pathlib.Path(name).expanduser()
        if not path.is_dir():
            paths.append(str(path))
            ids.append(name)
            continue
        found, others = list_images(path)
        paths += found
        is_only = len(names) == 1
        ids += [
            pathlib.Path(each).relative_to(path).as_posix() if is_only else each for each in found
        ]
        left_out += others
    if not paths:
        raise ValueError(
            f"`images` must name an image. Received: {', '.join(folders)}, without any"
        )

    def read(start, stop):
        return {"path": np.array(paths[start:stop], object)}

    return ImageRows(len(paths), ids.__getitem__, read, left_out=left_out)


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
            pixels = _pixels(images.read(number, number + 1))
            picture = Image.fromarray(pixels)
            picture.thumbnail((size, size))
            found[id] = np.asarray(picture)
    return found


def _pixels(columns):
    if "image" in columns:
        return columns["image"][0]
    encoded = columns["bytes"][0] if "bytes" in columns else tf.io.read_file(columns["path"][0])
    return turn_upright(decode(encoded), read_orientation(encoded)).numpy()
