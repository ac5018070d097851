"""The identity of data: results that are stored for some data are not taken for those of others."""

import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from keras_vit.data import find_source
from keras_vit.data.inputs import find_images
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.masks import write_masks
from tests.fixtures.records import write_tfrecord


def other_picture(path):
    """Replace a picture by another one with as many bytes."""
    before, image = path.read_bytes(), np.flip(np.asarray(decoded(path)), 0)
    after = encode(image, "BMP")
    assert len(after) == len(before) and after != before
    path.write_bytes(after)


def decoded(path):
    return tf.io.decode_image(path.read_bytes()).numpy()


def folder(root):
    write_folder(root, suffix=".bmp")
    return f"folder:{root}", root, lambda: other_picture(root / "cat" / "1.bmp")


def large_images(root):
    """The only bytes that differ are in the middle of 300 KB."""
    write_folder(root, count=1, suffix=".bmp", size=320)

    def change():
        path = root / "cat" / "0.bmp"
        contents = bytearray(path.read_bytes())
        contents[len(contents) // 2] ^= 255
        path.write_bytes(contents)

    return str(root), root, change


def csv(root):
    write_folder(root, suffix=".bmp")
    names = [f"{name}/{index}.bmp" for name in ("cat", "dog") for index in range(4)]
    lines = [f"{name},{name.split('/')[0]}" for name in names]
    table = root / "labels.csv"
    table.write_text("\n".join(lines))
    return f"csv:{table}", root, lambda: table.write_text("\n".join([*lines[:-1], "dog/3.bmp,cat"]))


def masks(root):
    write_masks(root)
    shown, other = (root / "test" / "masks" / f"{index}.png" for index in range(2))
    return f"masks:{root}", root, lambda: shutil.copy(other, shown)


def tfrecord(root):
    """Exported again: as many records of the same sizes."""
    write_tfrecord(root / "a.tfrecord", seed=0)
    return f"tfrecord:{root}/*.tfrecord", root, lambda: write_tfrecord(root / "a.tfrecord", seed=50)


def label_of_a_record(root):
    """One label among records of 1 MB, far from the blocks that would be sampled."""
    path = root / "a.tfrecord"
    write_tfrecord(path, seed=0, size=170)
    return f"tfrecord:{path}", root, lambda: write_tfrecord(path, 0, 170, others={5})


def label_of_a_row(root):
    root.mkdir()

    def write(labels):
        column = [encode(random_image(170, 170, seed=index), "BMP") for index in range(12)]
        table = pyarrow.table({"bytes": column, "label": labels})
        pyarrow.parquet.write_table(table, root / "a.parquet", compression="none")

    write([0] * 12)
    return str(root), root, lambda: write([0] * 5 + [1] + [0] * 6)


EVERY = "train+validation+test"
KINDS = [folder, large_images, csv, masks, tfrecord, label_of_a_record, label_of_a_row]


@pytest.mark.parametrize("make", KINDS)
def test_other_contents_under_the_same_names_are_other_data(make, tmp_path):
    name, _, change = make(tmp_path / "data")
    before = find_images([name]).digest()
    change()
    assert find_images([name]).digest() != before


@pytest.mark.parametrize("make", [folder, masks, tfrecord])
def test_a_copy_in_another_place_is_the_same(make, tmp_path):
    name, root, _ = make(tmp_path / "data")
    copy = shutil.copytree(root, tmp_path / "copy")
    moved = name.replace(str(root), str(copy))
    assert find_source(moved, "train").digest() == find_source(name, "train").digest()


def test_lists_of_labels_are_other_data_than_single_ones(tmp_path):
    _, root, _ = tfrecord(tmp_path / "data")
    single, lists = (f"{kind}:{root}/*.tfrecord" for kind in ("tfrecord", "tfrecord-lists"))
    assert find_source(single, "train").digest() != find_source(lists, "train").digest()
