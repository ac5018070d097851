"""Where examples come from: digits, a folder of images, TensorFlow Datasets."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.data.images import decode
from keras_vit.data.splits import find_part, stratified_part

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
# The original's: `vit_jax/configs/common.py`.
SHUFFLE_BUFFER = 50_000
FOLDER_NAMES = {
    "train": ("train",),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}


@dataclasses.dataclass(frozen=True)
class Source:
    """The examples of one split.

    Args:
        examples: unbatched dataset of `(example, label)`.
        to_image: turns an example into an image `(height, width, 3)` with values in [0, 255].
        class_names: name of each label.
        num_examples: how many there are.
        shuffle_buffer: how many are held to shuffle them.
        paths: the files, where the examples are files.
    """

    examples: tf.data.Dataset
    to_image: Callable
    class_names: tuple[str, ...]
    num_examples: int
    shuffle_buffer: int
    paths: tuple[str, ...] = ()


def digits(split, classes=None):
    """The 1,797 handwritten digits of 8 x 8 pixels that scikit-learn ships.

    Reference:
        Optical Recognition of Handwritten Digits, UCI machine learning repository.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(
            "The dataset `digits` comes with scikit-learn: pip install 'keras-vit[demo]'. "
            "Received: name='digits'"
        ) from error
    data = load_digits()
    _, start, stop = find_part(split, given=["train"])
    part = stratified_part(data.target, start, stop)
    # Ink is 0 to 16; pixels are 0 to 255, in three equal channels.
    pixels = np.round(data.images[part] * (255 / 16)).astype("uint8")
    names = tuple(str(digit) for digit in range(10))
    return _from_arrays(np.repeat(pixels[..., None], 3, axis=-1), data.target[part], names, classes)


def folder(path, split, classes=None):
    """Image files in one folder a class, below `train/` and perhaps `validation/`, `test/`."""
    root = pathlib.Path(path).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"`folder:PATH` must name a folder of images. Received: {str(root)!r}, "
            f"which {'is not a folder' if root.exists() else 'does not exist'}"
        )
    given = _given_folders(root)
    names = _class_names(given["train"])
    if len(names) < 2:
        raise ValueError(
            "A folder of images must have at least two classes. "
            f"Received: {str(given['train'])!r}, whose only class is {names[0]!r}"
        )
    given_split, start, stop = find_part(split, given)
    paths, labels = _list_images(given[given_split], names, required=given_split == "train")
    part = stratified_part(labels, start, stop)
    if len(part) == 0:
        raise ValueError(
            f"The split {split!r} of the folder {str(root)!r} has no image. Received: "
            f"{len(paths)} images in {str(given[given_split])!r} to take it from"
        )
    return _from_arrays(np.array(paths)[part], labels[part], names, classes)


def tensorflow_dataset(name, split, data_dir=None, classes=None):
    """A classification dataset of TensorFlow Datasets, downloaded where it is not on disk."""
    import tensorflow_datasets as tfds

    if classes is not None:
        raise ValueError(f"`classes` cannot be chosen from `tfds:`. Received: classes={classes}")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
        raise ValueError(
            "`tfds:NAME` must name a dataset of TensorFlow Datasets, or one prepared in `data_dir`."
            f" Received: {name!r}, data_dir={data_dir!r}"
        ) from error
    features = dict(builder.info.features or {})
    label = features.get("label")
    if "image" not in features or not isinstance(label, tfds.features.ClassLabel):
        raise ValueError(
            "`tfds:NAME` must name a dataset with an `image` and a class `label`. "
            f"Received: {name!r} with {sorted(features)}"
        )
    builder.download_and_prepare()
    given_split, start, stop = find_part(split, builder.info.splits.keys())
    part = f"{given_split}[{start:.0%}:{stop:.0%}]"
    # Shuffled while still encoded, so that the buffer stays small.
    encoded = builder.as_dataset(split=part, decoders={"image": tfds.decode.SkipDecoding()})
    num_examples = builder.info.splits[part].num_examples
    return Source(
        encoded.map(lambda row: (row["image"], row["label"])),
        lambda image: _as_rgb(features["image"].decode_example(image)),
        tuple(label.names),
        num_examples,
        min(num_examples, SHUFFLE_BUFFER),
    )


def _from_arrays(examples, labels, class_names, classes):
    if classes is not None:
        keep = _check_classes(classes, class_names)
        chosen = np.isin(labels, keep)
        examples, labels = examples[chosen], np.searchsorted(keep, labels[chosen])
        class_names = tuple(class_names[label] for label in keep)
    are_files = examples.ndim == 1
    return Source(
        tf.data.Dataset.from_tensor_slices((examples, labels.astype("int32"))),
        _read if are_files else (lambda image: image),
        class_names,
        len(labels),
        len(labels),
        tuple(examples.tolist()) if are_files else (),
    )


def _check_classes(classes, class_names):
    unknown = isinstance(classes, str) or set(classes) - set(class_names)
    if unknown or not classes:
        raise ValueError(
            f"`classes` must be among {', '.join(class_names)}. Received: classes={classes!r}"
        )
    return np.array(sorted(class_names.index(name) for name in set(classes)))


def _read(path):
    return decode(tf.io.read_file(path))


def _as_rgb(image):
    return tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image[..., :3]


def _given_folders(root):
    given = {}
    for split, names in FOLDER_NAMES.items():
        folders = [root / name for name in names if (root / name).is_dir()]
        if folders:
            given[split] = folders[0]
    # One level: the folder is all there is.
    return given if "train" in given else {"train": root}


def _class_names(folder):
    names = tuple(
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    )
    if not names:
        raise ValueError(
            "A folder of images must have one folder for each class, as in "
            f"`{folder}/CLASS/picture.jpg`. Received: {str(folder)!r}, which has none"
        )
    return names


def _is_image(path):
    is_hidden = any(part.startswith(".") for part in path.parts[-2:])
    return path.suffix.lower() in SUFFIXES and not is_hidden and path.is_file()


def _list_images(folder, class_names, required):
    unknown = sorted(set(_class_names(folder)) - set(class_names))
    if unknown:
        raise ValueError(
            f"The classes in {str(folder)!r} must be those of `train`. Received: {unknown}"
        )
    paths, labels = [], []
    for label, name in enumerate(class_names):
        found = sorted(str(path) for path in (folder / name).rglob("*") if _is_image(path))
        if required and not found:
            raise ValueError(
                f"Every class must have images ({', '.join(SUFFIXES)}). "
                f"Received: {str(folder / name)!r}, which has none"
            )
        paths += found
        labels += [label] * len(found)
    return paths, np.array(labels, "int32")
