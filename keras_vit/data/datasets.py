"""Batches of images from any dataset, through one call."""

import dataclasses
import functools
import numbers

from keras_vit.core.arguments import is_integer
from keras_vit.core.choices import BY_POSITION, DIVIDED
from keras_vit.core.class_names import check_class_names
from keras_vit.data.caching import cached
from keras_vit.data.exclusion import leave_out
from keras_vit.data.fingerprints import fingerprints
from keras_vit.data.images.augment import mixing
from keras_vit.data.images.augmentations import find_augmentation
from keras_vit.data.images.image_maker import ImageMaker
from keras_vit.data.pipeline import Pipeline
from keras_vit.data.skipped import Skipped
from keras_vit.data.sources.digits import digits
from keras_vit.data.sources.folder import folder
from keras_vit.data.sources.paper import DATASETS
from keras_vit.data.sources.splits import SPLITS
from keras_vit.data.sources.tfds import paper_dataset, tensorflow_dataset
from keras_vit.data.sources.tfrecord import records


def load(
    name,
    split,
    image_size,
    batch_size,
    training=False,
    min_crop_area=None,
    flip=False,
    augmentation="none",
    random_crop_from=None,
    central_crop_from=None,
    upright=False,
    one_hot=False,
    repeat=False,
    start_step=0,
    classes=None,
    fraction=1.0,
    exclude=(),
    skip=(),
    max_skipped=0.1,
    cache=None,
    shard=(0, 1),
    seed=0,
    data_dir=None,
):
    """Loads a split of a dataset as batches that a model takes.

    Gives `(images, labels)`: float32 `(batch, height, width, 3)` in [-1, 1] and int32 `(batch,)`,
    or float32 `(batch, classes)` where `one_hot` or `augmentation` wants shares of classes, or an
    image has several labels. Unless the dataset is repeated, the last batch may be smaller and no
    image is dropped or comes twice.

    An image that cannot be decoded is skipped and taken down in `skipped`.

    Args:
        name: a name of `keras_vit.data.DATASETS`; `"digits"` (scikit-learn's handwritten digits);
            `"folder:PATH"` (with `train/CLASS/*.jpg` and perhaps `validation/`, `test/`; or
            `CLASS/*.jpg`, which is split); `"tfds:NAME"` or `"tfds:NAME:CONFIG"` (TensorFlow
            Datasets); or `"tfrecord:PATTERN"` (TFRecord files with `labels.txt` beside them;
            `{split}` in the pattern stands for the name of a split).
        split: `"train"`, `"validation"` or `"test"`, or several joined with `+`;
            `keras_vit.data.sources.splits` says what they are where the dataset does not have them.
        image_size: int or `(height, width)`, in pixels.
        batch_size: images in a batch.
        training: whether to shuffle, differently in each epoch.
        min_crop_area: smallest part of an image's area that a random crop has; `None` for no crop.
            The original crops training images with 0.05.
        flip: whether to flip images left and right at random; `"always"`, as big_transfer does,
            flips them all.
        augmentation: what else is done to training images: a name of AugReg's (`"light1"`,
            `"medium1"`, ...) or a `keras_vit.data.Augmentation`.
        random_crop_from: side of the square to which images are resized before a random part of
            `image_size` is cut out, as BiT-HyperRule trains; see `hyper_rule_sizes`.
        central_crop_from: smaller side to which images are resized before the middle is cut out, as
            big_vision evaluates (448 for 384, 256 for 224). The original resizes the whole image.
        upright: whether to turn photographs as their EXIF data says; the original does not.
        one_hot: whether labels are shares of classes.
        repeat: whether epochs follow one another without an end, in batches of one size.
        start_step: how many batches of a repeated dataset have been seen already.
        classes: names of the classes to keep, numbered from 0 in the dataset's order; `None` for
            all. Of `digits` and folders alone.
        fraction: about what share of the examples is taken, at random; of the same split and
            classes the same ones whatever the seed, and those of a smaller share are among those of
            a larger. All of them are still read.
        exclude: ids of examples to leave out, or the path of a file with one per line, such
            as `keras_vit.data.find_duplicates` writes.
        skip: ids of images that a stopped run has skipped (its `skipped.ids`), so that the batches
            from `start_step` on are those that it would have seen.
        max_skipped: the greatest share of images that may be skipped; ten always may.
        cache: `"memory"` or the path of a file, to keep encoded images after the first epoch; a
            file that was made of other examples is refused.
        shard: `(index, count)`: the part of one worker among so many. Together they have every
            example once.
        seed: of order and augmentation: whoever has the same seed sees the same batches.
        data_dir: where TensorFlow Datasets keeps its data.

    Returns:
        A `tf.data.Dataset` with the attributes `class_names`, `num_examples` (of the shard),
        `shard`, `skipped`: its length is the number of images skipped so far, `skipped.ids` are
        their names; `left_out`: how many files of a folder are no images, by reason;
        `source`: the `Source` of the examples; `fingerprints`: a function that reads all images and
        returns `keras_vit.data.fingerprints.Fingerprints`; and `from_step`: a function of
        `start_step` and `skip` that gives the same dataset from another step on.

    Raises:
        ValueError: if the dataset is unknown or has no images, or an argument is out of range.

    Reference:
        `vit_jax/input_pipeline.py`.

    Example:
    >>> test = keras_vit.data.load("digits", "test", image_size=(16, 16), batch_size=32)
    >>> test.num_examples, test.class_names[:3], len(test.skipped)
    (359, ('0', '1', '2'), 0)
    """
    augmentation = find_augmentation(augmentation)
    maker = ImageMaker(
        image_size,
        min_crop_area=min_crop_area,
        flip=flip,
        augmentation=augmentation,
        random_crop_from=random_crop_from,
        central_crop_from=central_crop_from,
        upright=upright,
    )
    _check_order(batch_size, repeat, start_step, skip, max_skipped, shard)
    source = _part(find_source(name, split, classes, data_dir, shard), fraction)
    find_every = functools.partial(_find_every, name, data_dir)
    source = leave_out(source, exclude, name, find_every)
    stored, find_fingerprints = source, functools.cache(functools.partial(fingerprints, source))
    broken = source.find_numbers(skip)
    if source.num_examples <= len(broken):
        raise ValueError(
            "Each worker must have an image that can be decoded. Received: "
            f"{source.num_examples} images of {name!r} for split={split!r}, shard={shard!r}"
        )
    if cache is not None:
        source = cached(source, cache, find_fingerprints)
    skipped = Skipped(source, max_skipped, broken)
    pipeline = Pipeline(
        source=source,
        make_image=dataclasses.replace(maker, scale=source.scale).make(),
        image_size=maker.image_size,
        batch_size=batch_size,
        training=training,
        repeat=repeat,
        start_step=start_step,
        seed=seed,
        shard=shard,
        skipped=skipped,
        broken=tuple(broken),
        mix=mixing(augmentation) if augmentation.mixes else None,
        one_hot=one_hot or augmentation.mixes,
    )
    dataset = _as_dataset(pipeline, max_skipped)
    dataset.source = stored
    dataset.fingerprints = find_fingerprints
    return dataset


def _as_dataset(pipeline, max_skipped):
    source = pipeline.source

    def from_step(start_step, skip=()):
        broken = source.find_numbers(skip)
        changes = {"start_step": start_step, "broken": tuple(broken)}
        skipped = Skipped(source, max_skipped, broken)
        return _as_dataset(dataclasses.replace(pipeline, **changes, skipped=skipped), max_skipped)

    dataset = pipeline.batches()
    dataset.class_names = source.class_names
    dataset.num_examples = source.num_examples
    dataset.shard = tuple(pipeline.shard)
    dataset.skipped = pipeline.skipped
    dataset.left_out = source.left_out
    dataset.from_step = from_step
    return dataset


def find_source(name, split, classes=None, data_dir=None, shard=(0, 1)):
    """The examples of a split of a dataset, encoded as they are stored.

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
    by_position = name.startswith(BY_POSITION)
    kind, _, rest = name.removeprefix(BY_POSITION).partition(":")
    if by_position and kind not in DIVIDED:
        raise ValueError(
            f"`{BY_POSITION}` must come before `folder:PATH` or `tfrecord:PATTERN`. "
            f"Received: name={name!r}"
        )
    if name == "digits":
        return digits(split, classes, shard)
    if kind == "folder" and rest:
        return folder(rest, split, classes, shard, by_position)
    if classes is not None:
        raise ValueError(
            "`classes` can be chosen from `digits` and `folder:PATH` alone. "
            f"Received: classes={classes!r}, name={name!r}"
        )
    if name in DATASETS:
        return paper_dataset(DATASETS[name], split, data_dir, shard)
    if kind == "tfds" and rest:
        return tensorflow_dataset(rest, split, data_dir, shard)
    if kind == "tfrecord" and rest:
        return records(rest, split, shard, by_position)
    raise ValueError(
        "`name` must be `digits`, `folder:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN` or one "
        f"of the paper's datasets, which `keras-vit data` lists. Received: name={name!r}"
    )


def _check_order(batch_size, repeat, start_step, skip, max_skipped, shard):
    for name, value, least in (("batch_size", batch_size, 1), ("start_step", start_step, 0)):
        if not is_integer(value) or not least <= value < 2**31:
            raise ValueError(
                f"`{name}` must be a positive integer{'' if least else ' or 0'}, less than 2**31. "
                f"Received: {name}={value!r}"
            )
    if (start_step or len(skip)) and not repeat:
        raise ValueError(
            "`start_step` and `skip` are for a repeated dataset, `repeat=True`. "
            f"Received: start_step={start_step}, skip={skip!r}, repeat={repeat}"
        )
    if not isinstance(max_skipped, numbers.Real) or not 0 <= max_skipped <= 1:
        raise ValueError(
            f"`max_skipped` must be a share, from 0 to 1. Received: max_skipped={max_skipped}"
        )
    is_pair = isinstance(shard, (tuple, list)) and len(shard) == 2
    if not is_pair or not all(is_integer(value) for value in shard):
        raise ValueError(f"`shard` must be `(index, count)`. Received: shard={shard!r}")
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(
            "`shard` must be `(index, count)`, the index from 0 to less than the count. "
            f"Received: shard={shard!r}"
        )


def _part(source, fraction):
    if not isinstance(fraction, numbers.Real) or not 0 < fraction <= 1:
        raise ValueError(
            f"`fraction` must be a share, above 0 and up to 1. Received: fraction={fraction!r}"
        )
    part = source.part(fraction)
    if source.num_examples and not part.num_examples:
        raise ValueError(
            "`fraction` must leave an image. "
            f"Received: fraction={fraction}, of {source.num_examples} images"
        )
    return part


def _find_every(name, data_dir):
    """Return the `Source` of all splits of a dataset."""
    row = DATASETS.get(name)
    return find_source(name, "+".join(SPLITS if row is None else row.splits), data_dir=data_dir)
