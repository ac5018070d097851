"""Write datasets to TFRecord files."""

import contextlib
import logging
import os
import pathlib

import tensorflow as tf
import tqdm

from keras_vit.core.arguments import check_integer
from keras_vit.core.files import replacing
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.base import Source
from keras_vit.data.sources.records.tfrecord import LABEL_FILES


def write_records(
    source: Source, folder: str | os.PathLike, split: str, num_files: int = 1
) -> list[pathlib.Path]:
    """Write a split of a dataset to TFRecord files, shuffled, with `labels.txt` next to them.

    They are read as `tfrecord:FOLDER/{split}-*`. Images stay encoded as they are; those that cannot
    be decoded are left out and logged.

    Args:
        source: the `Source`, as of `keras_vit.data.find_source`.
        folder: path of the directory, created if it does not exist.
        split: name of the split, with which the names of the files begin.
        num_files: number of files; for several workers, at least as many.

    Returns:
        A list of the paths of the files.

    Raises:
        ValueError: if the directory has files of the split or other class names; the images have
            several labels, scaled pixels or a border; no image can be decoded; examples are
            missing; or a label or class name could not be read again.
    """
    folder = pathlib.Path(folder).expanduser()
    labels = "".join(f"{name}\n" for name in source.class_names)
    _check_source(source, num_files)
    _check_target(folder, split, labels)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{split}-{i:05d}-of-{num_files:05d}.tfrecord" for i in range(num_files)]
    with contextlib.ExitStack() as stack:
        _write(source, [stack.enter_context(replacing(path)) for path in paths])
    with replacing(folder / LABEL_FILES[0]) as partial_labels:
        partial_labels.write_text(labels, encoding="utf-8")
    return paths


def _write(source, paths):
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in paths]
        examples = source.examples.shuffle(source.shuffle_buffer, seed=0)
        progress = tqdm.tqdm(examples.as_numpy_iterator(), total=source.num_examples, unit="image")
        place, read, count = 0, 0, len(source.class_names)
        for number, payload, label in progress:
            read += 1
            if not 0 <= label < count:
                raise ValueError(
                    f"A label must be from 0 to {count - 1}, for the {count} classes. Received: "
                    f"label={label} of {source.find_id(int(number))}"
                )
            try:
                image = tf.convert_to_tensor(source.read(payload)).numpy()
                decode(image)
            except tf.errors.OpError:
                name = source.find_id(int(number))
                logging.getLogger("keras_vit").warning("left out %s: it cannot be decoded", name)
                continue
            place += 1
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writers[place % len(writers)].write(example.SerializeToString())
    if read != source.num_examples or not place:
        raise ValueError(
            f"All {source.num_examples} examples of the dataset must be read, and some of them "
            f"decoded. Received: {read}, of which {place} can be decoded"
        )


def _check_source(source, num_files):
    check_integer("num_files", num_files, minimum=1)
    _, _, label = source.examples.element_spec
    if source.scale != 1 or source.border or label.shape.rank != 0:
        raise ValueError(
            "`source` must have one label per image, pixels from 0 to 255 and no border. Received: "
            f"scale={source.scale}, border={source.border}, labels of shape {label.shape}"
        )
    if "\n".join(source.class_names).splitlines() != list(source.class_names):
        raise ValueError(
            "`source` must have class names of one line each, none of them empty. "
            f"Received: {source.class_names!r:.500}"
        )


def _check_target(folder, split, text):
    there = sorted(folder.glob(f"{split}-*.tfrecord"))
    if there:
        raise ValueError(
            "`folder` must not have files of the split yet. "
            f"Received: folder={str(folder)!r} with {there[0].name}"
        )
    labels = folder / LABEL_FILES[0]
    if labels.exists() and labels.read_text(encoding="utf-8") != text:
        raise ValueError(
            "The class names in `folder` must be those of the dataset. "
            f"Received: {str(labels)!r} with others"
        )
