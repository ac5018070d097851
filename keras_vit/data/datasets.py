"""Batches of images from any dataset, through one call."""

import contextlib
import numbers

import tensorflow as tf

from keras_vit.data import sources
from keras_vit.data.images import decode, evaluation_image, training_image


def load(
    name,
    split,
    image_size,
    batch_size,
    training=False,
    min_crop_area=None,
    flip=False,
    classes=None,
    seed=0,
    data_dir=None,
):
    """Loads a split of a dataset as batches that a model takes.

    Gives `(images, labels)`: float32 `(batch, height, width, 3)` in [-1, 1] and int32 `(batch,)`.
    The last batch may be smaller; no image is dropped or repeated.

    Args:
        name: `"digits"` (scikit-learn's handwritten digits), `"folder:PATH"` (with
            `train/CLASS/*.jpg` and perhaps `validation/`, `test/`; or `CLASS/*.jpg`, which is
            split), or `"tfds:NAME"` (TensorFlow Datasets).
        split: `"train"`, `"validation"` or `"test"`; `keras_vit.data.splits` says what they are
            where the dataset does not have them.
        image_size: int or `(height, width)`, in pixels.
        batch_size: images in a batch.
        training: whether to shuffle, differently in each epoch.
        min_crop_area: smallest part of an image's area that a random crop has; `None` for no crop.
            The original crops training images with 0.05.
        flip: whether to flip images left and right at random.
        classes: names of the classes to keep, numbered from 0 in the dataset's order; `None` for
            all.
        seed: of shuffling and augmentation.
        data_dir: where TensorFlow Datasets keeps its data.

    Returns:
        A `tf.data.Dataset` with the attributes `class_names`, `num_examples` and `paths`.

    Raises:
        ValueError: if the dataset is unknown or has no images, or an argument is out of range.

    Example:
    >>> test = keras_vit.data.load("digits", "test", image_size=(16, 16), batch_size=32)
    >>> test.num_examples, test.class_names[:3]
    (359, ('0', '1', '2'))
    """
    if not isinstance(batch_size, numbers.Integral) or not 0 < batch_size < 2**31:
        raise ValueError(
            f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}"
        )
    image_size = _as_size(image_size)
    if min_crop_area is not None and not 0 < min_crop_area <= 1:
        raise ValueError(
            "`min_crop_area` must be greater than 0 and at most 1. "
            f"Received: min_crop_area={min_crop_area!r}"
        )
    source = _find_source(name, split, classes, data_dir)
    dataset = source.examples
    if training:
        dataset = dataset.shuffle(source.shuffle_buffer, seed=seed)
    if min_crop_area is not None or flip:
        dataset = _augment(dataset, source.to_image, image_size, seed, min_crop_area or 1.0, flip)
    else:
        dataset = dataset.map(
            lambda example, label: (evaluation_image(source.to_image(example), image_size), label),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    dataset = dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)
    dataset.class_names = source.class_names
    dataset.num_examples = source.num_examples
    dataset.paths = source.paths
    return dataset


def _as_size(image_size):
    is_one = isinstance(image_size, numbers.Integral)
    size = (image_size, image_size) if is_one else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, numbers.Integral) and side > 0 for side in size):
        raise ValueError(
            "`image_size` must be a positive integer or a pair of them. "
            f"Received: image_size={image_size!r}"
        )
    return size


def _augment(dataset, to_image, image_size, seed, min_crop_area, flip):
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2)

    def augment(example_and_label, image_seed):
        example, label = example_and_label
        image = to_image(example)
        return training_image(image, image_size, image_seed, min_crop_area, flip), label

    return tf.data.Dataset.zip(dataset, seeds).map(augment, num_parallel_calls=tf.data.AUTOTUNE)


def _find_source(name, split, classes, data_dir):
    kind, _, rest = str(name).partition(":")
    if name == "digits":
        return sources.digits(split, classes)
    if kind == "folder" and rest:
        return sources.folder(rest, split, classes)
    if kind == "tfds" and rest:
        return sources.tensorflow_dataset(rest, split, data_dir, classes)
    raise ValueError(
        "`name` must be `digits`, `folder:PATH` or `tfds:NAME` for a dataset. "
        f"Received: name={name!r}"
    )


@contextlib.contextmanager
def naming_undecodable_files(*datasets):
    """Turns TensorFlow's error for an undecodable image into one that names the file.

    Args:
        *datasets: datasets of `load` that the body iterates over.

    Raises:
        ValueError: if the body failed and a file of the datasets cannot be decoded.
    """
    try:
        yield
    except tf.errors.OpError as error:
        broken = [path for dataset in datasets for path in dataset.paths if not decodes(path)]
        if not broken:
            raise
        raise ValueError(
            "Every image must be a complete JPEG, PNG, GIF, BMP or WebP file. "
            f"Received: {broken[0]!r}"
            + (f" and {len(broken) - 1} more that are not" if broken[1:] else ", which is not")
        ) from error


def decodes(path):
    """Whether the file is an image that can be decoded."""
    try:
        decode(tf.io.read_file(path))
    except tf.errors.OpError:
        return False
    return True
