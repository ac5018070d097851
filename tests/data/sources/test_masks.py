"""Folders of images and masks: their splits, and what is wrong with them."""

import io
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from keras_vit.data import find_source, load
from keras_vit.data.processes import pad
from keras_vit.data.sources.masks import count_pixels, examples_of, read_mask
from keras_vit.data.sources.splits import SPLITS
from tests.data.sources.test_tfds import store
from tests.fixtures.masks import IGNORED, NAMES, draw, write_masks

REASONS = (
    "a mask must be a PNG file",
    "a mask must have one number per pixel",
    "a mask must have numbers below 3, or 255",
    "a mask must have the size (24, 32)",
    "Unknown image file format",
)


def test_images_and_masks_are_those_of_the_files(tmp_path):
    source = find_source(f"masks:{write_masks(tmp_path)}", "validation")
    assert source.class_names == NAMES
    found = list(examples_of(source))
    assert len(found) == source.num_examples == 6
    for index, (image, mask) in enumerate(found):
        expected = draw(100 + index)
        np.testing.assert_array_equal(image, expected[0])
        np.testing.assert_array_equal(mask, expected[1])
    counts = np.bincount(np.concatenate([mask.ravel() for _, mask in found]))
    found, share = count_pixels(source)
    np.testing.assert_array_equal(found, counts[:3])
    assert share == pytest.approx(23 / 24)


def test_a_folder_without_splits_is_divided(tmp_path):
    root = write_masks(tmp_path, ("all",), count=20)
    for folder in ("images", "masks"):
        (root / "all" / folder).rename(root / folder)
    sources = [find_source(f"masks:{root}", split) for split in SPLITS]
    assert [source.num_examples for source in sources] == [14, 2, 4]
    ids = [source.find_id(number) for source in sources for number in source.numbers.tolist()]
    assert sorted(ids) == sorted(f"images/{number}.png" for number in range(20))


def test_a_missing_split_is_taken_from_the_training_images(tmp_path):
    root = write_masks(tmp_path, ("train", "Testing"), count=10)
    sizes = [find_source(f"masks:{root}", split).num_examples for split in SPLITS]
    assert sizes == [9, 1, 10]


@pytest.mark.slow
def test_crop_and_flip_are_those_of_the_image(tmp_path):
    options = {"training": True, "min_crop_area": 0.2, "flip": True, "seed": 3}
    root = write_masks(tmp_path, count=16)
    images, masks = next(load(f"masks:{root}", "train", 24, 16, **options).as_numpy_iterator())
    assert masks.dtype == np.int32
    assert set(np.unique(masks)) <= {0, 1, 2, IGNORED}
    # Where the picture is red or blue, beyond what interpolation mixes.
    for label, channel in ((1, 0), (2, 2)):
        is_colored = (images[..., channel] > 0.9) & (images[..., 1] < -0.9)
        assert np.mean(masks[is_colored] == label) > 0.97


@pytest.mark.slow
def test_broken_masks_are_skipped_and_named(tmp_path):
    root = write_masks(tmp_path, count=10)
    masks = root / "train" / "masks"
    (masks / "0.png").write_text("text")
    Image.new("RGB", (32, 24)).save(masks / "1.png")
    Image.new("L", (32, 24), 7).save(masks / "2.png")
    Image.new("L", (5, 5)).save(masks / "3.png")
    (root / "train" / "images" / "4.png").write_text("text")
    data = load(f"masks:{root}", "train", 24, 4, max_skipped=0.5)
    assert sum(len(labels) for _, labels in data) == 5
    reasons = data.info.skipped.reasons
    for number, reason in enumerate(REASONS):
        assert reasons.pop(f"train/images/{number}.png").startswith(reason)
    assert not reasons


def with_splits_below_images(root):
    """As some datasets are laid out: the splits would be divided anew."""
    for kind in ("images", "masks"):
        (root / "train" / kind).rename(root / kind)
        (root / kind / "val").mkdir()
    for split in ("train", "validation", "test"):
        shutil.rmtree(root / split, ignore_errors=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_splits_below_images, "either in folders of splits or in DIR itself. .* with both"),
        (lambda root: shutil.rmtree(root / "train/masks"), "6 of 6 images without one"),
        (lambda root: (root / "train/masks/3.png").unlink(), "1 of 6 images .*train/images/3.png"),
    ],
    ids=["splits below images", "no masks", "a mask less"],
)
def test_folders_without_a_mask_for_each_image_are_refused(damage, message, tmp_path):
    damage(write_masks(tmp_path))
    with pytest.raises(ValueError, match=message):
        find_source(f"masks:{tmp_path}", "train")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_masks_of_few_bits(bits):
    """Pillow multiplies the numbers of gray images of 2 and 4 bits."""
    numbers = np.arange(12, dtype="uint8").reshape(3, 4) % min(2**bits, 6)
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, "PNG", bits=bits)
    assert file.getvalue()[24] == bits
    np.testing.assert_array_equal(read_mask(file.getvalue(), (3, 4), 6), numbers)


def test_augmentations_of_images_alone_are_refused(tmp_path):
    write_masks(tmp_path)
    with pytest.raises(ValueError, match="only `min_crop_area` and `flip`"):
        load(f"masks:{tmp_path}", "train", 24, 4, training=True, augmentation="light1")


@pytest.mark.slow
def test_each_pixel_of_a_mask_has_a_weight(tmp_path):
    """Six images in batches of four, then a batch that is empty."""
    dataset = load(f"masks:{write_masks(tmp_path)}", "test", 8, batch_size=4)
    batches = list(pad(dataset, 4, 3, weight=0.5).as_numpy_iterator())
    assert [weights.shape for _, _, weights in batches] == [(4, 8, 8)] * 3
    assert [masks.shape for _, masks, _ in batches] == [(4, 8, 8)] * 3
    per_image = np.concatenate([weights.mean(axis=(1, 2)) for _, _, weights in batches])
    assert per_image.tolist() == [0.5] * 6 + [0.0] * 6


@pytest.mark.slow
def test_masks_of_tensorflow_datasets(tmp_path):
    """Those of the pets count from 1."""
    pairs = [draw(number) for number in range(10)]
    images, masks = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    numbers = np.minimum(masks, 2)
    examples = {"image": images, "segmentation_mask": numbers[..., None] + 1}
    dataset = tf.data.Dataset.from_tensor_slices(examples)
    mask = tfds.features.Image(shape=(None, None, 1))
    splits = dict.fromkeys(("train", "test"), dataset)
    store("oxford_iiit_pet", splits, tmp_path, version="4.0.0", segmentation_mask=mask)
    source = find_source("oxford_iiit_pet_masks", "test", data_dir=tmp_path)
    assert source.class_names == ("pet", "background", "border")
    found = {mask.tobytes(): image for image, mask in examples_of(source)}
    for image, mask in zip(images, numbers.astype("int32"), strict=True):
        np.testing.assert_array_equal(found[mask.tobytes()], image)
