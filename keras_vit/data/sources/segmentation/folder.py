"""Folders of images and of their masks."""

import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.core.choices import IGNORED
from keras_vit.core.class_names import check_class_names
from keras_vit.core.text import name_some
from keras_vit.data.sources.base import SEPARATOR, from_arrays
from keras_vit.data.sources.division import divide
from keras_vit.data.sources.folder import shares_of
from keras_vit.data.sources.folder_layout import SPLIT_NAMES, find_splits
from keras_vit.data.sources.listing import list_images
from keras_vit.data.sources.splits import split_names

IMAGES, MASKS, CLASSES = "images", "masks", "classes.txt"


def masks(path, split, shard=(0, 1)):
    """Find the images of a split, and the mask of each.

    The folder has `train/images/*.jpg`, `train/masks/*.png` with the same names, perhaps
    `validation/` and `test/`, and `classes.txt`, a name per line in the order of the pixels'
    values. `images/` and `masks/` may be in the folder itself: then they are divided by names, as
    is a split that is missing.

    Args:
        path: path of the folder.
        split: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source` whose payloads are pairs of files, and whose labels are all 0; ids are paths of
        images relative to the folder.

    Raises:
        ValueError: if the folder does not have this layout, or an image has no mask.
    """
    root = pathlib.Path(path).expanduser()
    splits = find_splits(root) if root.is_dir() else {}
    given = {name: folder for name, folder in splits.items() if (folder / IMAGES).is_dir()}
    _check_splits(root, splits, given)
    given = given or {"train": root}
    _check_layout(root, given)
    names = check_class_names((root / CLASSES).read_text("utf-8-sig").splitlines(), CLASSES)
    if len(names) > IGNORED:
        raise ValueError(
            f"`{CLASSES}` must have at most {IGNORED} names, as pixels of the value {IGNORED} have "
            f"no class. Received: {len(names)} names in {str(root)!r}"
        )
    wanted, pairs, left_out = set(split_names(split)), [], None
    for name, folder in given.items():
        listed, ignored = list_images(folder / IMAGES)
        left_out = ignored if left_out is None else left_out + ignored
        ids = {pathlib.Path(image).relative_to(root).as_posix(): image for image in listed}
        shares = shares_of(given, name)
        if not set(shares) & wanted:
            continue
        if not set(shares) <= wanted:
            place = (folder / IMAGES).relative_to(root).as_posix()
            division = divide(root, {place: [*ids]}, shares)
            ids = {id: image for id, image in ids.items() if division[id] in wanted}
        pairs += [(image, _mask_of(image, folder)) for image in ids.values()]
    if not pairs:
        raise ValueError(
            f"`masks:DIR` must have images in the split. Received: {str(root)!r}, split={split!r}"
        )
    first = {mask: image for image, mask in reversed(pairs)}
    shared = [image for image, mask in pairs if first[mask] != image]
    missing = [image for image, mask in pairs if not pathlib.Path(mask).is_file()]
    if missing or shared:
        raise ValueError(
            f"Each image of `masks:DIR` must have its own mask of its name in `{MASKS}/`, a PNG "
            f"file. Received: {str(root)!r}, split={split!r}, {len(pairs)} images, with the mask "
            f"of another: {name_some(shared) or 'none'}, without a mask: "
            f"{name_some(missing) or 'none'}"
        )
    return from_arrays(
        np.array([SEPARATOR.join(pair) for pair in pairs]),
        np.zeros(len(pairs), "int32"),
        names,
        find_id=lambda number: pathlib.Path(pairs[number][0]).relative_to(root).as_posix(),
        part=slice(shard[0], None, shard[1]),
        read=_read,
        path_of=lambda number: pairs[number][0],
        left_out=left_out,
        part_by_id=True,
        has_masks=True,
    )


def _read(payload):
    """Return the bytes of an image and of its mask as one string."""
    image, mask = tf.unstack(tf.strings.split(payload, SEPARATOR), 2)
    return pack(tf.io.read_file(image), tf.io.read_file(mask))


def pack(image, mask):
    """Return two strings as one, which `unpack` reads."""
    return tf.io.serialize_tensor(tf.stack([image, mask]))


def unpack(encoded):
    """Return the two strings of `pack`."""
    return tf.unstack(tf.io.parse_tensor(encoded, tf.string), 2)


def _mask_of(image, folder):
    path = pathlib.Path(image).relative_to(folder / IMAGES)
    return str(folder / MASKS / path.with_suffix(".png"))


def _check_splits(root, splits, given):
    """Raise `ValueError` for folders of splits whose images would silently be in others."""
    known = {name for names in SPLIT_NAMES.values() for name in names}
    within = [path for path in sorted((root / IMAGES).glob("*/")) if path.name.lower() in known]
    without = [name for name in splits if given and name not in given]
    if without or within:
        found = [f"{name}/ without {IMAGES}/" for name in without]
        found += [f"{folder.relative_to(root).as_posix()}/" for folder in within]
        raise ValueError(
            f"`masks:DIR` must have `{IMAGES}/` and `{MASKS}/` in the folder of each split. "
            f"Received: {str(root)!r} with {', '.join(found)}"
        )


def _check_layout(root, given):
    place = given.get("train", root)
    needed = (place / IMAGES, place / MASKS, root / CLASSES)
    if missing := [path.relative_to(root).as_posix() for path in needed if not path.exists()]:
        raise ValueError(
            f"`masks:DIR` must name a folder with `{IMAGES}/`, `{MASKS}/` (or both in `train/`) "
            f"and `{CLASSES}`. Received: {str(root)!r} without {', '.join(missing)}"
        )
