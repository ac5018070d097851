"""`load`: batches of images from any dataset, by its name."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.core.files import replacing
from keras_vit.core.text import check_class_names
from keras_vit.data.dataset import Dataset
from keras_vit.data.images.decoding import is_dark
from keras_vit.data.images.geometry import ImageMaker
from keras_vit.data.images.preprocessing import Preprocessing, find_preprocessing
from keras_vit.data.left_out import explaining_errors, leave_out
from keras_vit.data.sources.kinds import KINDS, find_kind
from keras_vit.data.sources.masks import MaskMaker
from keras_vit.data.sources.named_datasets import DATASETS
from keras_vit.data.sources.source import Source, log_once
from keras_vit.data.sources.splits import SPLITS

# Suffix of the file next to a cache that records the digest of its images.
_RECORD = ".keras_vit.json"
# Number of images that are checked for values of more than 8 bits.
_FIRST = 8


def load(
    name: str,
    split: str,
    image_size: int | tuple[int, int],
    batch_size: int,
    training: bool = False,
    preprocessing: Preprocessing | str | None = None,
    repeat: bool = False,
    classes: Sequence[str] | None = None,
    fraction: float = 1.0,
    exclude: Sequence[str] | str | os.PathLike = (),
    max_skipped: float = 0.1,
    cache: str | os.PathLike | None = None,
    shard: tuple[int, int] = (0, 1),
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
    balanced: bool = False,
    **changes: Any,
) -> tf.data.Dataset:
    """Load a split of a dataset as batches for a model.

    Batches are `(images, labels)`: float32 `(batch, height, width, channels)` in [-1, 1] and int32
    `(batch,)`. There are three channels of 8 bits unless `image_spec` says otherwise. Labels are
    float32 `(batch, classes)` with `one_hot`, with an augmentation that mixes images, and for
    multi-label datasets. Unless the dataset is repeated, every image comes once, and the last batch
    may be smaller.

    An image that cannot be decoded is skipped and recorded in `info.skipped`.

    Args:
        name: a name of `keras_vit.data.DATASETS`; `"digits"` (scikit-learn's handwritten digits);
            `"folder:PATH"` (with `train/CLASS/*.jpg`, and optionally `validation/` and `test/`; or
            `CLASS/*.jpg`, which is split); `"csv:PATH"` (lines such as `1.jpg,cat dog`);
            `"tfds:NAME"` or `"tfds:NAME:CONFIG"` (TensorFlow Datasets); `"tfrecord:PATTERN"`,
            `"tfrecord-lists:PATTERN"` (TFRecord files with a label or a list of labels, and
            `labels.txt`; `{split}` in the pattern stands for the name of a split);
            `"parquet:PATTERN"` (columns of encoded images and of labels); `"webdataset:PATTERN"`
            (tar files); `"hf:NAME"` or `"hf:NAME:CONFIG"` (Hugging Face's package `datasets`);
            `"objectnet:DIR"` (ObjectNet with ImageNet's classes, test split only); or
            `"masks:DIR"` (images whose labels are masks, int32 `(batch, height, width)`).
        split: `"train"`, `"validation"` or `"test"`, or several joined with `+`. If a dataset lacks
            a split, images are taken from another split: see `keras_vit.data.sources.splits`.
        image_size: int or `(height, width)`, in pixels.
        batch_size: images per batch.
        training: whether to shuffle, differently in each epoch.
        preprocessing: the operations on an image: a `keras_vit.data.Preprocessing`, or the name of
            a preset, which depends on `training`: `"original"` (vit_jax), `"big_vision"` or
            `"hyper_rule"` (BiT). By default the whole image is resized.
        repeat: whether to repeat epochs without end; all batches are then full.
        classes: names of the classes to keep, numbered from 0 in the dataset's order; `None` for
            all. For `digits`, folders and CSV files only.
        fraction: approximate share of the examples to take, chosen at random. The choice does not
            depend on the seed, and a larger share includes the examples of a smaller share. All
            examples are still read.
        exclude: ids of examples to leave out, or the path of a file with one id per line, such as
            `keras_vit.data.write_ids` writes.
        max_skipped: greatest share of images that may be skipped; ten images always may be.
        cache: where to keep encoded images after the first epoch: `"memory"` or the path of a file.
            It is an error if the file has other images.
        shard: `(index, count)`, the share of one worker. Each example belongs to one worker.
        seed: seed of the order and the augmentation: the same seed gives the same batches.
        data_dir: directory of TensorFlow Datasets.
        balanced: whether to repeat the images of small classes, so that each epoch has about
            equally many images of each class; only for training.
        **changes: fields of `Preprocessing` that replace fields of `preprocessing`:
            `min_crop_area`, `random_crop_from`, `central_crop_from`, `image_spec`, `flip`,
            `augmentation`, `upright`, `one_hot`.

    Returns:
        A `tf.data.Dataset` with two attributes: `class_names`, and `info`, a
        `keras_vit.data.DatasetInfo` with the number of images, the skipped images, and the
        `keras_vit.data.Dataset` that made the batches. To resume a repeated dataset, take
        `info.dataset.from_step(step, info.skipped.reasons).batches()`.

    Raises:
        ValueError: if the dataset is unknown or has no images, or an argument is out of range.
        TypeError: if a keyword argument is unknown.

    Reference:
        `vit_jax/input_pipeline.py`.

    Example:
    >>> test = keras_vit.data.load("digits", "test", image_size=(16, 16), batch_size=32)
    >>> test.info.num_examples, test.info.class_names[:3], len(test.info.skipped)
    (359, ('0', '1', '2'), 0)
    >>> train = keras_vit.data.load(
    ...     "digits", "train", 16, 32, training=True, preprocessing="original", flip=False
    ... )
    >>> train.info.dataset.maker.preprocessing.min_crop_area
    0.05
    """
    if not 0 < fraction <= 1:
        raise ValueError(
            f"`fraction` must be a share, above 0 and up to 1. Received: fraction={fraction!r}"
        )
    preprocessing = find_preprocessing(preprocessing, training, image_size, **changes)
    find_all = functools.partial(find_all_splits, name, data_dir)

    def find(shard):
        source = find_source(name, split, classes, data_dir, shard).subset(fraction)
        return leave_out(source, exclude, name, split, find_all)

    source = find((0, 1))
    if preprocessing.image_spec.value_range is None and not source.has_masks:
        _warn_if_dark(source, name)
    examples = source if tuple(shard) == (0, 1) else find(shard)
    if balanced and (source.has_masks or not training):
        raise ValueError(
            "`balanced` must be false without `training`, because repeated images would count "
            f"several times, and for masks. Received: balanced=True, {training=}, name={name!r}"
        )
    options = {"scale": source.scale, "border": source.border}
    if source.has_masks:
        maker = MaskMaker(image_size, preprocessing, num_classes=len(source.class_names), **options)
    else:
        maker = ImageMaker(image_size, preprocessing, **options)
    return Dataset(
        source,
        examples if cache is None else cache_images(examples, cache),
        maker,
        batch_size=batch_size,
        training=training,
        repeat=repeat,
        seed=seed,
        shard=tuple(shard),
        max_skipped=max_skipped,
        one_hot=preprocessing.one_hot or preprocessing.augmentation.mixes,
        balanced=balanced,
    ).batches()


def _warn_if_dark(source, name):
    """Log a warning if the first images have more than 8 bits, and nearly black upper 8 bits."""
    found = set()
    for _, payload, _ in source.examples.take(_FIRST).ignore_errors():
        with contextlib.suppress(tf.errors.OpError):
            found.add(is_dark(source.read(payload).numpy()))
    if found - {None} == {True}:
        log_once(
            logging.WARNING,
            f"the images of {name} have more than 8 bits, and fill less than an eighth of their "
            "range: they are nearly black. Give their range, as in "
            "`image_spec=ImageSpec(value_range=(0, 4095))` or `--value-range 0 4095`",
        )


def find_source(
    name: str,
    split: str,
    classes: Sequence[str] | None = None,
    data_dir: str | os.PathLike | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Source:
    """Find the examples of a split of a dataset, without decoding them.

    Args:
        name: as in `load`.
        split: as in `load`.
        classes: as in `load`.
        data_dir: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source`.

    Raises:
        ValueError: as `load`.
    """
    name = str(name)
    kind, argument = find_kind(name)
    if kind is None and name not in DATASETS:
        raise ValueError(
            f"`name` must be {', '.join(f'`{known.pattern}`' for known in KINDS.values())} "
            f"or a name that `keras-vit data` lists. Received: name={name!r}"
        )
    if name in DATASETS:
        kind = dataclasses.replace(KINDS["tfds"], function="tfds:paper_dataset")
        argument = DATASETS[name]
    options = {"data_dir": data_dir} if "data_dir" in kind.takes else {}
    if classes is not None:
        if "classes" not in kind.takes:
            raise ValueError(
                "`classes` is for `digits`, `folder:PATH` and `csv:PATH` only. "
                f"Received: classes={classes!r}, name={name!r}"
            )
        options["classes"] = classes
    source = kind.find(argument, split, shard=shard, **options)
    count = len(source.class_names) if source.has_values else None
    check_class_names(source.class_names, f"The class names of {str(name)!r}", count)
    return source


def find_all_splits(name, data_dir):
    """Return a `Source` with the examples of all splits of a dataset."""
    return find_source(name, "+".join(splits_of(name)), data_dir=data_dir)


def splits_of(name):
    """Return the names of the splits that a dataset with this name may have.

    Example:
    >>> splits_of("folder:photos"), splits_of("imagenet2012_real")
    (('train', 'validation', 'test'), ('test',))
    """
    if name in DATASETS:
        return tuple(DATASETS[name].splits)
    kind, _ = find_kind(name)
    return SPLITS if kind is None else kind.splits


def first_images(batches, count):
    """Return the first images of batches of `load` as an array, and a list of their labels."""
    images, labels = [], []
    with explaining_errors(batches):
        for batch in batches.as_numpy_iterator():
            images += list(batch[0])
            labels += list(batch[1])
            if len(images) >= count:
                break
    return np.stack(images[:count]), labels[:count]


def images_of_classes(batches, count=24, read=200):
    """Return images and labels of as many classes as possible, from the first `read` images."""
    images, labels = first_images(batches, read)
    # Take the first image of each class, then the second of each class, and so on.
    classes = [int(np.argmax(label)) if np.ndim(label) else int(label) for label in labels]
    ranks = [classes[:index].count(label) for index, label in enumerate(classes)]
    chosen = sorted(range(len(images)), key=ranks.__getitem__)[:count]
    return images[chosen], [labels[index] for index in chosen]


def cache_images(source, cache):
    """Return a `Source` that keeps the encoded images after the first pass.

    Args:
        source: a `Source`.
        cache: `"memory"`, or the path of a new file or of a file made from the same examples.

    Returns:
        A `Source`.

    Raises:
        ValueError: if the file was made from other examples.
        OSError: if the folder cannot be written to.
    """
    path = ""
    if cache != "memory":
        path = pathlib.Path(cache).expanduser()
        _check_examples(path, source.digest())
    return source.with_examples(source.encoded().cache(str(path)))


def _check_examples(path, digest):
    record = path.with_name(path.name + _RECORD)
    # The cache is new if it has no record, and TensorFlow has not written its index.
    if not record.exists() and not path.with_name(f"{path.name}.index").exists():
        with replacing(record) as partial:
            partial.write_text(json.dumps({"digest": digest}) + "\n")
    try:
        recorded = json.loads(record.read_text())["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        recorded = None
    if recorded != digest:
        raise ValueError(
            "`cache` must be a new file, or a file made from the same images and labels. "
            f"Received: cache={str(path)!r}, made from {'other' if recorded else 'unknown'} images "
            f"or labels; delete {path.name}* to create the cache again"
        )
