"""Values in CSV files."""

import dataclasses

import numpy as np
import pytest

from keras_vit.data import Augmentation, find_source, load
from keras_vit.data.inputs import find_images
from tests.data.sources.test_multi_label_sources import ALL, labels_by_id, write_csv

LINES = ["image,age,size", *(f"a/{n}.png,{n}.5,{-10 * n}" for n in range(10))]
EXPECTED = {f"a/{n}.png": (n + 0.5, -10.0 * n) for n in range(10)}


def values_by_id(name, split=ALL, **options):
    source = find_source(name, split, **options)
    examples = source.examples.as_numpy_iterator()
    return {source.find_id(number): tuple(values) for number, _, values in examples}


def test_values_have_the_names_of_their_columns(tmp_path):
    name = write_csv(tmp_path, LINES)
    assert values_by_id(name) == EXPECTED
    source = find_source(name, "train")
    assert source.class_names == ("age", "size")
    assert source.has_values and not source.is_multi_label


def test_one_column(tmp_path):
    name = write_csv(tmp_path, ["image, age", "a/0.png, 1e1", "a/1.png,-2"])
    assert values_by_id(name) == {"a/0.png": (10.0,), "a/1.png": (-2.0,)}
    assert find_source(name, ALL).class_names == ("age",)


def test_columns_that_are_kept(tmp_path):
    found = values_by_id(write_csv(tmp_path, LINES), classes=["size"])
    assert found == {image: values[1:] for image, values in EXPECTED.items()}


def test_a_directory(tmp_path):
    write_csv(tmp_path, LINES[:9], "train.csv")
    (tmp_path / "test.csv").write_text("image,age,size\na/8.png,0,0\na/9.png,1,2")
    assert values_by_id(f"csv:{tmp_path}", "test") == {"a/8.png": (0, 0), "a/9.png": (1, 2)}
    assert len(values_by_id(f"csv:{tmp_path}", "train+validation")) == 8


@pytest.mark.parametrize("header", ["image,labels", "image,Label", "a/9.png,5"])
def test_numbers_are_labels_without_a_name_of_values(header, tmp_path):
    name = write_csv(tmp_path, [header, "a/0.png,3", "a/1.png,4"])
    found = labels_by_id(name)
    assert (found["a/0.png"], found["a/1.png"]) == (["3"], ["4"])


def test_a_text_makes_a_column_labels(tmp_path):
    name = write_csv(tmp_path, ["image,kind", "a/0.png,3", "a/1.png,cat"])
    assert labels_by_id(name) == {"a/0.png": ["3"], "a/1.png": ["cat"]}


@pytest.mark.parametrize("wrong", ["", "cat", "nan", "inf", "1;2"])
def test_several_columns_must_be_finite_numbers(wrong, tmp_path):
    name = write_csv(tmp_path, [*LINES[:5], f"a/9.png,1,{wrong}"])
    with pytest.raises(ValueError, match=f"must be finite numbers.* with a/9.png,1,{wrong}$"):
        find_source(name, "train")


def test_files_must_have_the_same_columns(tmp_path):
    write_csv(tmp_path, LINES[:9], "train.csv")
    (tmp_path / "test.csv").write_text("image,size,age\na/9.png,1,2")
    with pytest.raises(ValueError, match="the same header in all files"):
        find_source(f"csv:{tmp_path}", "train")


def test_a_line_has_a_field_for_each_column(tmp_path):
    with pytest.raises(ValueError, match="line 11 of .*'a/9.png,1'"):
        find_source(write_csv(tmp_path, [*LINES[:10], "a/9.png,1"]), "train")


def test_the_digest_depends_on_the_values(tmp_path):
    first = find_source(write_csv(tmp_path, LINES), ALL).digest()
    (tmp_path / "labels.csv").write_text("\n".join(LINES).replace("3.5", "3.6"))
    assert find_source(f"csv:{tmp_path / 'labels.csv'}", ALL).digest() != first


@pytest.mark.slow
def test_mixed_images_have_mixed_values(tmp_path):
    options = {"training": True, "seed": 1}
    name = write_csv(tmp_path, LINES)
    plain = load(name, ALL, 8, 10, **options)
    mixed = load(name, ALL, 8, 10, **options, augmentation=Augmentation(mixup=1.0))
    ((images, values),) = plain.as_numpy_iterator()
    ((mixed_images, mixed_values),) = mixed.as_numpy_iterator()
    design = np.reshape(images, (10, -1)).T
    assert not np.allclose(values, mixed_values)
    # The share of each image in a mixed image is its share in the values.
    for image, found in zip(mixed_images, mixed_values, strict=True):
        shares, *_ = np.linalg.lstsq(design, np.ravel(image), rcond=None)
        np.testing.assert_allclose(shares @ values, found, atol=1e-3)


@pytest.mark.slow
def test_batches_resume(tmp_path):
    name = write_csv(tmp_path, LINES)
    dataset = load(name, ALL, 8, 4, training=True, repeat=True).info.dataset
    batches = [values for _, values in dataset.batches().take(4).as_numpy_iterator()]
    resumed = dataset.from_step(2).batches().take(2).as_numpy_iterator()
    np.testing.assert_array_equal(batches[2:], [values for _, values in resumed])
    assert dataclasses.replace(dataset, one_hot=True).batches().element_spec[1].shape[-1] == 2


def test_values_are_a_column_of_the_images_to_predict(tmp_path):
    rows = find_images([write_csv(tmp_path, LINES)], split="test")
    columns = rows.columns(0, rows.num_images)
    found = zip(columns["id"], columns["label"], strict=True)
    assert all(tuple(values) == EXPECTED[id] for id, values in found)
