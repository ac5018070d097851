"""Datasets and preprocessing."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import load, preprocess
from keras_vit.data.datasets import naming_undecodable_files
from keras_vit.data.images import decode, evaluation_image, training_image
from keras_vit.data.splits import SPLITS, find_part, stratified_part
from tests.images import encode, random_image, write_folder


def all_labels(dataset):
    return np.concatenate([labels for _, labels in dataset.as_numpy_iterator()])


def all_images(dataset):
    return np.concatenate([images for images, _ in dataset.as_numpy_iterator()])


@pytest.mark.parametrize("kind", [np.asarray, tf.constant, lambda pixels: pixels.tolist()])
def test_preprocess(kind):
    pixels = np.arange(256).astype("uint8")
    expected = (pixels.astype("float32") - 127.5) / 127.5
    scaled = np.asarray(preprocess(kind(pixels)))
    assert scaled.dtype == "float32"
    np.testing.assert_array_equal(scaled, expected)
    assert scaled[0] == -1
    assert scaled[-1] == 1


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_decode(file_format):
    image = decode(encode(random_image(12, 16), file_format))
    assert image.shape == (12, 16, 3)
    assert image.dtype == tf.uint8


def test_decode_gives_three_channels():
    grey, alpha = random_image()[..., 0], np.dstack([random_image(), random_image()[..., 0]])
    assert decode(encode(grey)).shape == (12, 16, 3)
    assert decode(encode(alpha)).shape == (12, 16, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda image: evaluation_image(image, (8, 10)),
        lambda image: training_image(image, (8, 10), tf.constant([1, 2])),
        lambda image: decode(tf.io.encode_png(image)),
    ],
)
def test_image_functions_are_the_same_eagerly_and_in_a_dataset(function):
    image = random_image()
    dataset = tf.data.Dataset.from_tensors(image).map(function)
    np.testing.assert_allclose(next(iter(dataset)), function(tf.constant(image)), atol=1e-6)


def test_evaluation_image_is_the_originals_resize():
    image = random_image()
    expected = (tf.image.resize(image, (6, 7)).numpy() - 127.5) / 127.5
    np.testing.assert_array_equal(evaluation_image(image, (6, 7)), expected)


def test_training_images_are_crops_and_flips():
    rows, columns = np.mgrid[:64, :64]
    image = np.dstack([rows, columns, rows]).astype("uint8")
    crops = [training_image(image, (16, 16), tf.constant([0, seed])) for seed in range(50)]
    crops = np.stack(crops) * 127.5 + 127.5
    flipped = crops[:, 0, 0, 1] > crops[:, 0, -1, 1]
    assert 10 < flipped.sum() < 40
    assert (crops[:, 0, 0, 0] < crops[:, -1, 0, 0]).all()
    areas = np.ptp(crops[..., 0], axis=(1, 2)) * np.ptp(crops[..., 1], axis=(1, 2)) / 63**2
    assert areas.min() < 0.3
    assert areas.max() > 0.7


@pytest.mark.parametrize(
    "given", [["train"], ["train", "test"], ["train", "validation"], list(SPLITS)]
)
def test_splits_do_not_overlap(given):
    parts = [find_part(split, given) for split in SPLITS]
    for index, (source, start, stop) in enumerate(parts):
        assert source in given
        assert start < stop
        for other, other_start, other_stop in parts[:index]:
            assert source != other or start >= other_stop or stop <= other_start


def test_parts_cover_every_example_of_each_class_once():
    labels = np.repeat([0, 1, 2], [10, 1, 37])
    parts = [stratified_part(labels, *ends) for ends in [(0, 0.7), (0.7, 0.8), (0.8, 1)]]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(48))
    np.testing.assert_array_equal(np.bincount(labels[parts[0]]), [7, 1, 26])


def test_digits():
    splits = {split: load("digits", split, (8, 8), 100) for split in SPLITS}
    assert sum(dataset.num_examples for dataset in splits.values()) == 1797
    for dataset in splits.values():
        images = all_images(dataset)
        assert images.shape == (dataset.num_examples, 8, 8, 3)
        assert images.min() == -1
        assert images.max() == 1
        assert set(all_labels(dataset)) == set(range(10))
        assert dataset.class_names == tuple("0123456789")
    everything = np.concatenate([all_images(dataset) for dataset in splits.values()])
    assert len(np.unique(everything, axis=0)) == 1797


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    expected = np.round(load_digits().images * (255 / 16))
    ours = all_images(load("digits", "train", (8, 8), 100))[..., 0] * 127.5 + 127.5
    known = {tuple(image.ravel()) for image in expected}
    assert all(tuple(np.round(image).ravel()) in known for image in ours)


def test_classes():
    whole = load("digits", "test", (8, 8), 64)
    some = load("digits", "test", (8, 8), 64, classes=("7", "2"))
    labels = all_labels(whole)
    assert some.class_names == ("2", "7")
    assert some.num_examples == np.isin(labels, [2, 7]).sum()
    np.testing.assert_array_equal(all_labels(some), (labels[np.isin(labels, [2, 7])] == 7))


def test_training_order():
    def epochs(seed):
        dataset = load("digits", "train", (8, 8), 64, training=True, seed=seed)
        return [all_labels(dataset) for _ in range(2)]

    first, second = epochs(seed=0)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.sort(first), np.sort(second))
    np.testing.assert_array_equal(epochs(seed=0), [first, second])
    assert not np.array_equal(epochs(seed=1)[0], first)


def test_augmentation_is_reproducible_and_new_in_each_epoch():
    def epochs():
        dataset = load("digits", "test", (8, 8), 64, min_crop_area=0.5)
        return [all_images(dataset) for _ in range(2)]

    first, second = epochs()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(epochs(), [first, second])


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_folder_of_one_level(suffix, tmp_path):
    write_folder(tmp_path, ("cat", "dog"), count=10, suffix=suffix)
    splits = [load(f"folder:{tmp_path}", split, (8, 8), 4) for split in SPLITS]
    assert [dataset.num_examples for dataset in splits] == [14, 2, 4]
    assert splits[0].class_names == ("cat", "dog")
    paths = [path for dataset in splits for path in dataset.paths]
    assert sorted(paths) == sorted(str(path) for path in tmp_path.rglob(f"*{suffix}"))
    for dataset in splits:
        images, labels = all_images(dataset), all_labels(dataset)
        # Cats are red and dogs are green.
        np.testing.assert_array_equal(images.mean(axis=(1, 2)).argmax(axis=-1), labels)


def test_folder_with_splits(tmp_path):
    for split, count in (("train", 10), ("val", 2), ("test", 3)):
        write_folder(tmp_path / split, count=count)
    sizes = [load(f"folder:{tmp_path}", split, (8, 8), 4).num_examples for split in SPLITS]
    assert sizes == [20, 4, 6]


def test_folder_with_train_and_test(tmp_path):
    for split, count in (("train", 10), ("test", 3)):
        write_folder(tmp_path / split, count=count)
    sizes = [load(f"folder:{tmp_path}", split, (8, 8), 4).num_examples for split in SPLITS]
    assert sizes == [18, 2, 6]


def test_what_is_no_image_file_is_left_out(tmp_path):
    write_folder(tmp_path, count=10)
    (tmp_path / "cat" / "._0.jpg").write_text("hidden")
    (tmp_path / "cat" / ".thumbnails").mkdir()
    (tmp_path / "cat" / ".thumbnails" / "0.jpg").write_text("hidden")
    (tmp_path / "cat" / "folder.jpg").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("text")
    assert load(f"folder:{tmp_path}", "train", 8, 4).num_examples == 14


def test_undecodable_file_is_named(tmp_path):
    write_folder(tmp_path, count=10)
    broken = tmp_path / "cat" / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    (tmp_path / "dog" / "text.jpg").write_text("not an image")
    datasets = [load(f"folder:{tmp_path}", split, (8, 8), 4) for split in SPLITS]
    with (
        pytest.raises(ValueError, match=r"Every image must be .*Received: '/.*(3|text)\.jpg'"),
        naming_undecodable_files(*datasets),
    ):
        for dataset in datasets:
            all_images(dataset)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda root: None, "one folder for each class.*which has none"),
        (lambda root: (root / "picture.jpg").write_text(""), "one folder for each class"),
        (
            lambda root: (write_folder(root), (root / "bird").mkdir()),
            "Every class must have images .*bird",
        ),
        (
            lambda root: (
                write_folder(root / "train"),
                write_folder(root / "test", classes=("cat", "bird")),
            ),
            r"must be those of `train`. Received: \['bird'\]",
        ),
        (lambda root: write_folder(root, classes=("all",)), "at least two classes.*'all'"),
        (lambda root: root.rmdir(), "`folder:PATH` must name a folder .*does not exist"),
    ],
)
def test_wrong_folder(prepare, message, tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    prepare(root)
    with pytest.raises(ValueError, match=message):
        load(f"folder:{root}", "test", (8, 8), 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "imagenet"}, "`name` must be .*name='imagenet'"),
        ({"name": "folder:"}, "`name` must be .*name='folder:'"),
        ({"name": "tfds:no_such_dataset"}, "`tfds:NAME` must name .*'no_such_dataset'"),
        ({"split": "dev"}, "`split` must be one of .*split='dev'"),
        ({"batch_size": 0}, "`batch_size` must be .*batch_size=0"),
        ({"classes": ("x",)}, r"`classes` must be among 0, 1.*classes=\('x',\)"),
        ({"min_crop_area": 0}, "`min_crop_area` must be .*min_crop_area=0"),
        ({"classes": "12"}, "`classes` must be among .*classes='12'"),
        ({"image_size": (0, 8)}, r"`image_size` must be .*\(0, 8\)"),
        ({"classes": ()}, "`classes` must be among"),
    ],
)
def test_wrong_argument(arguments, message):
    defaults = {"name": "digits", "split": "test", "image_size": (8, 8), "batch_size": 4}
    with pytest.raises(ValueError, match=message):
        load(**{**defaults, **arguments})


def test_tensorflow_dataset(tmp_path):
    """A dataset that TensorFlow Datasets itself wrote to disk, as `tfds build` would."""
    import tensorflow_datasets as tfds

    class Colours(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "label": tfds.features.ClassLabel(names=["red", "green"]),
            }
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(20), "test": self._generate_examples(6)}

        def _generate_examples(self, count):
            for index in range(count):
                image = np.zeros((10, 12, 3), "uint8")
                image[..., index % 2] = 255
                yield index, {"image": image, "label": index % 2}

    Colours(data_dir=tmp_path).download_and_prepare()
    splits = [load("tfds:colours", split, (8, 8), 4, data_dir=tmp_path) for split in SPLITS]
    assert [dataset.num_examples for dataset in splits] == [18, 2, 6]
    for dataset in splits:
        assert dataset.class_names == ("red", "green")
        images, labels = all_images(dataset), all_labels(dataset)
        assert images.shape == (dataset.num_examples, 8, 8, 3)
        np.testing.assert_array_equal(images.mean(axis=(1, 2)).argmax(axis=-1), labels)
