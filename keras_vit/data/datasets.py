"""Batches of images from any dataset, through one call."""

import dataclasses
import functools
import inspect
import logging
import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.core.arguments import check_options
from keras_vit.core.class_names import check_class_names
from keras_vit.data.caching import cached
from keras_vit.data.exclusion import leave_out
from keras_vit.data.images.augment import mixing
from keras_vit.data.images.preprocessing import Preprocessing, find_preprocessing
from keras_vit.data.images.transforms import ImageMaker
from keras_vit.data.info import DatasetInfo
from keras_vit.data.pipeline import Pipeline, check_order
from keras_vit.data.skipped import Skipped
from keras_vit.data.sources.base import Source
from keras_vit.data.sources.features import compute_features, feature_source
from keras_vit.data.sources.kinds import KINDS, find_kind, names_with
from keras_vit.data.sources.masks import MaskMaker, split_masks
from keras_vit.data.sources.paper import DATASETS
from keras_vit.data.sources.splits import SPLITS
from keras_vit.data.sources.tfds import paper_dataset


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
    **changes: Any,
) -> tf.data.Dataset:
    """Load a split of a dataset as batches for a model.

    Batches are `(images, labels)`: float32 `(batch, height, width, 3)` in [-1, 1] and int32
    `(batch,)`. Labels are float32 `(batch, classes)` with `one_hot`, with an augmentation that
    mixes images, and if images have several labels. Unless the dataset is repeated, every image
    comes once, and the last batch may be smaller.

    An image that cannot be decoded is skipped and recorded in `skipped`.

    Args:
        name: a name of `keras_vit.data.DATASETS`; `"digits"` (scikit-learn's handwritten digits);
            `"folder:PATH"` (with `train/CLASS/*.jpg` and perhaps `validation/`, `test/`; or
            `CLASS/*.jpg`, which is split); `"csv:PATH"` (lines such as `1.jpg,cat dog`);
            `"tfds:NAME"` or `"tfds:NAME:CONFIG"` (TensorFlow Datasets); `"tfrecord:PATTERN"`,
            `"tfrecord-lists:PATTERN"` (TFRecord files with a label or a list of labels, and
            `labels.txt`; `{split}` in the pattern stands for the name of a split);
            `"objectnet:DIR"` (ObjectNet with ImageNet's classes, to test on); or `"masks:DIR"`
            (images with masks, which are the labels, int32 `(batch, height, width)`).
        split: `"train"`, `"validation"` or `"test"`, or several joined with `+`;
            `keras_vit.data.sources.splits` defines them for datasets that lack some.
        image_size: int or `(height, width)`, in pixels.
        batch_size: images in a batch.
        training: whether to shuffle, differently in each epoch.
        preprocessing: what is done to an image: a `keras_vit.data.Preprocessing`, or the name of a
            preset, which depends on `training`: `"original"` (vit_jax), `"big_vision"` or
            `"hyper_rule"` (BiT). By default the whole image is resized.
        repeat: whether epochs follow one another without end, in batches of one size.
        classes: names of the classes to keep, numbered from 0 in the dataset's order; `None` for
            all. For `digits`, folders and CSV files only.
        fraction: approximate share of the examples to take, chosen at random. The choice does not
            depend on the seed, and a smaller share is part of a larger one. All examples are still
            read.
        exclude: ids of examples to leave out, or the path of a file with one per line, such
            as `keras_vit.data.find_duplicates` writes.
        max_skipped: greatest share of images that may be skipped; ten are always allowed.
        cache: `"memory"` or the path of a file, to keep encoded images after the first epoch. A
            file with other examples is refused.
        shard: `(index, count)`, the share of one worker. Together the workers have every example
            once.
        seed: seed of the order and the augmentation: the same seed gives the same batches.
        data_dir: directory of TensorFlow Datasets.
        **changes: fields of `Preprocessing` that replace those of `preprocessing`:
            `min_crop_area`, `random_crop_from`, `central_crop_from`, `image_spec`, `flip`,
            `augmentation`, `upright`, `one_hot`. Also `start_step` and `skip`, to resume a repeated
            dataset: the number of batches seen, and the images that were skipped, as ids or as
            `skipped.reasons`; `load(...).from_step(start_step, skip)` does the same. And
            `balanced`, for training: whether images of classes with few of them are repeated, so
            that each pass has about equally many of each class.

    Returns:
        A `tf.data.Dataset` whose attribute `info` is a `keras_vit.data.DatasetInfo`: class names,
        number of images, what was skipped and more. Each is an attribute of the dataset, too.

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
    >>> train.info.preprocessing.min_crop_area, train.info.preprocessing.flip
    (0.05, False)
    """
    start_step, skip = changes.pop("start_step", 0), changes.pop("skip", ())
    balanced = changes.pop("balanced", False)
    fields = [field.name for field in dataclasses.fields(Preprocessing)]
    *own, _ = inspect.signature(load).parameters
    check_options("load", changes, [*fields, *own, "start_step", "skip", "balanced"])
    preprocessing = find_preprocessing(preprocessing, training, image_size, **changes)
    maker = ImageMaker(image_size, preprocessing)
    check_order(batch_size, repeat, start_step, skip, max_skipped, shard, seed)
    source = _part(find_source(name, split, classes, data_dir, shard), fraction)
    if training and classes is not None and tuple(classes) != tuple(source.class_names):
        logging.getLogger("keras_vit").info(
            "classes are numbered in the order of the dataset: %s", ", ".join(source.class_names)
        )
    source = leave_out(source, exclude, name, split, functools.partial(find_every, name, data_dir))
    stored = source if cache is None else cached(source, cache)
    augmentation = maker.preprocessing.augmentation
    mix = mixing(augmentation) if augmentation.mixes else None
    if source.has_masks:
        maker, mix = (
            MaskMaker(image_size, maker.preprocessing, num_classes=len(source.class_names)),
            split_masks,
        )
    maker = dataclasses.replace(maker, scale=source.scale, border=source.border)
    make_pipeline = functools.partial(
        Pipeline,
        make_image=maker.make(),
        read_image=maker.read,
        shape=(*maker.image_size, 4 if source.has_masks else 3),
        batch_size=batch_size,
        training=training,
        repeat=repeat,
        start_step=start_step,
        seed=seed,
        shard=tuple(shard),
        mix=mix,
        one_hot=maker.preprocessing.one_hot or augmentation.mixes,
    )

    def batches(make, examples, skip=()):
        """Return the dataset of batches; `skip` is as in `load`."""
        reasons = skip if isinstance(skip, dict) else dict.fromkeys(skip, "skipped before")
        broken = source.find_numbers(reasons)
        present = examples.numbers[np.isin(examples.numbers, broken)].tolist()
        if examples.num_examples <= len(present):
            raise ValueError(
                "Each worker must have an image that can be decoded. Received: "
                f"{examples.num_examples} images of {name!r}, of which {len(present)} cannot be "
                f"decoded, for split={split!r}, shard={shard!r}"
            )
        known = {id: reasons[id] for id in map(source.find_id, broken)}
        skipped = Skipped(examples, max_skipped, known)
        pipeline = make(source=examples, skipped=skipped, broken=tuple(present))

        def from_step(start_step, skip=()):
            resumed = functools.partial(make, start_step=start_step)
            return batches(resumed, examples, skip)

        def only(numbers):
            part = examples.without(np.setdiff1d(examples.numbers, numbers))
            return batches(make, part, skip)

        def with_features(extract):
            once = {"training": False, "repeat": False, "start_step": 0, "one_hot": False}
            images = batches(functools.partial(make, **once), source)
            features, labels = compute_features(images, extract)
            missing = source.find_numbers(images.skipped.ids)
            found, make_features = feature_source(source, features, labels, missing)
            found = found.balanced() if balanced else found
            changes = {"make_image": make_features, "read_image": make_features}
            resized = functools.partial(make, **changes, shape=features.shape[1:])
            return batches(resized, found, images.skipped.reasons)

        info = DatasetInfo(
            class_names=source.class_names,
            num_examples=examples.num_examples,
            shard=pipeline.shard,
            skipped=skipped,
            left_out=source.left_out,
            source=source,
            preprocessing=maker.preprocessing,
            training=training,
            from_step=from_step,
            with_features=with_features,
            only=only,
        )
        return info.attach(pipeline.batches())

    if balanced and (stored.has_masks or not training):
        raise ValueError(
            "`balanced` must be false without `training`, where images would count twice, and for "
            f"masks. Received: balanced=True, training={training}, name={name!r}"
        )
    stored = stored.balanced() if balanced else stored
    return batches(make_pipeline, stored, skip)


def find_source(
    name: str,
    split: str,
    classes: Sequence[str] | None = None,
    data_dir: str | os.PathLike | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Source:
    """Find the examples of a split of a dataset, encoded as they are stored.

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
    source = _find_source(str(name), split, classes, data_dir, shard)
    check_class_names(source.class_names, f"The class names of {str(name)!r}")
    return source


def _find_source(name, split, classes, data_dir, shard):
    kind, argument = find_kind(name)
    is_from_paper = name in DATASETS
    if kind is None and not is_from_paper:
        raise ValueError(
            f"`name` must be {', '.join(f'`{row.pattern}`' for row in KINDS.values())} "
            f"or one of the paper's, which `keras-vit data` lists. Received: name={name!r}"
        )
    taken = ("data_dir",) if is_from_paper else kind.takes
    options = {"data_dir": data_dir} if "data_dir" in taken else {}
    if classes is not None:
        _check_taken("classes", "`classes`", taken, f"classes={classes!r}, name={name!r}")
        options["classes"] = classes
    if is_from_paper:
        return paper_dataset(DATASETS[name], split, shard=shard, **options)
    return kind.find(argument, split, shard=shard, **options)


def _check_taken(option, shown, taken, received):
    if option not in taken:
        raise ValueError(f"{shown} is for {names_with(option)} only. Received: {received}")


def _part(source, fraction):
    if not isinstance(fraction, numbers.Real) or not 0 < fraction <= 1:
        raise ValueError(
            f"`fraction` must be a share, above 0 and up to 1. Received: fraction={fraction!r}"
        )
    part = source.part(fraction)
    if source.num_examples and not part.num_examples:
        raise ValueError(
            "`fraction` must select at least one image. "
            f"Received: fraction={fraction}, of {source.num_examples} images"
        )
    return part


def find_every(name, data_dir):
    """Return the `Source` of all splits of a dataset."""
    return find_source(name, "+".join(splits_of(name)), data_dir=data_dir)


def splits_of(name):
    """Return the names of the splits that a dataset has, as far as its name says.

    Example:
    >>> splits_of("folder:photos"), splits_of("imagenet2012_real")
    (('train', 'validation', 'test'), ('test',))
    """
    if name in DATASETS:
        return tuple(DATASETS[name].splits)
    kind, _ = find_kind(name)
    return SPLITS if kind is None else kind.splits
