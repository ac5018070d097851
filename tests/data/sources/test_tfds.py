"""TensorFlow Datasets: built here from files, and the paper's with made-up examples."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data import DATASETS, find_source, load
from keras_vit.data.inputs import find_images
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import identify
from tests.fixtures.photos import broken_images, write_photos


class Photos(tfds.core.GeneratorBasedBuilder):
    """Photographs in a dataset that TensorFlow Datasets itself writes to disk."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = tuple(tfds.core.BuilderConfig(name=name) for name in ("small", "wide"))
    folder = None

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=["china", "flower", "portrait"]),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 20), "test": self._generate_examples(20, 24)}

    def _generate_examples(self, start, stop):
        for path in sorted(self.folder.rglob("*.*")):
            if start <= int(path.stem) < stop:
                # Examples are stored in the order of their keys' hashes.
                label = path.parent.name
                yield f"{label}/{path.name}", {"image": str(path), "label": label}


def store(name, splits, data_dir, version="1.0.0", **features):
    """Write images with other features to disk, as TensorFlow Datasets does."""
    features["image"] = tfds.features.Image(shape=(None, None, 3))
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        features=tfds.features.FeaturesDict(features),
        split_datasets=splits,
        data_dir=data_dir,
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    Photos.folder = write_photos(root / "raw", 24, size=(24, 20))
    (Photos.folder / "china" / "004.jpg").write_bytes(broken_images()["truncated.jpg"])
    for config in ("small", "wide"):
        Photos(data_dir=root, config=config).download_and_prepare()
    return root


def rows(data_dir, split, **options):
    dataset = load("tfds:photos:small", split, 8, 5, data_dir=data_dir, **options)
    return identify(list(dataset.as_numpy_iterator()))


@pytest.mark.slow
def test_other_contents_of_one_version_are_other_data(tmp_path):
    """Prepared again, with one label corrected."""
    digests = []
    for folder, last in (("a", 1), ("b", 0), ("c", 1)):
        examples = {"image": np.zeros((3, 8, 8, 3), "uint8"), "label": [0, 1, last]}
        dataset = tf.data.Dataset.from_tensor_slices(examples)
        label = tfds.features.ClassLabel(names=["cat", "dog"])
        store("pets", {"train": dataset}, tmp_path / folder, label=label)
        source = find_source("tfds:pets", "train+validation+test", data_dir=tmp_path / folder)
        digests.append(source.digest())
    assert digests[0] == digests[2] != digests[1]


def test_splits_and_classes(data_dir):
    sources = [find_source("tfds:photos:small", split, data_dir=data_dir) for split in SPLITS]
    assert [source.num_examples for source in sources] == [54, 6, 12]
    assert tuple(sources[0].class_names) == ("china", "flower", "portrait")
    ids = [sources[1].find_id(number) for number in sources[1].numbers]
    assert ids == [f"train#{place}" for place in range(54, 60)]
    wide = find_source("tfds:photos/wide:1.0.0", "test", data_dir=data_dir)
    assert wide.num_examples == 12


def test_a_broken_example_is_named_by_its_place(data_dir):
    dataset = load("tfds:photos:small", "train+validation", 8, 5, data_dir=data_dir)
    seen = sum(len(labels) for _, labels in dataset.as_numpy_iterator())
    (id,) = dataset.info.skipped.reasons
    assert seen == dataset.info.num_examples - 1 == 59
    place = int(id.removeprefix("train#"))
    decoders = {"image": tfds.decode.SkipDecoding()}
    split = f"train[{place}:{place + 1}]"
    (example,) = tfds.load("photos/small", split=split, data_dir=data_dir, decoders=decoders)
    assert example["image"].numpy() == broken_images()["truncated.jpg"]


@pytest.mark.slow
def test_workers_together_have_every_example_once(data_dir):
    parts = [rows(data_dir, "train", shard=(i, 3), training=True) for i in range(3)]
    together = np.concatenate(parts)
    np.testing.assert_array_equal(together[np.lexsort(together.T)], rows(data_dir, "train"))


def made_up(feature, rng):
    """An example of a feature of TensorFlow Datasets."""
    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: made_up(inner, rng) for name, inner in feature.items()}
    if isinstance(feature, tfds.features.Sequence):
        return [made_up(feature.feature, rng) for _ in range(rng.integers(3, 11))]
    if isinstance(feature, tfds.features.Image):
        shape = [16 if side is None else side for side in feature.shape]
        return rng.integers(0, 2, shape).astype(feature.np_dtype)
    if isinstance(feature, tfds.features.ClassLabel):
        return int(rng.integers(feature.num_classes))
    if isinstance(feature, tfds.features.BBoxFeature):
        return tfds.features.BBox(0.0, 0.0, 1.0, 1.0)
    if isinstance(feature, tfds.features.Text):
        return "text"
    return rng.uniform(0, 30, feature.shape).astype(feature.np_dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vtab/clevr_count",
        pytest.param("vtab/clevr_distance", marks=pytest.mark.large),
        "vtab/kitti_distance",
        pytest.param("vtab/dsprites_location", marks=pytest.mark.large),
        pytest.param("vtab/smallnorb_azimuth", marks=pytest.mark.large),
        "imagenet2012_real",
        "vtab/patch_camelyon",
    ],
)
def test_labels_come_from_the_datasets_own_features(name, tmp_path, monkeypatch):
    """Examples with the real features, written by the dataset's own builder."""
    row = DATASETS[name]
    builder = tfds.builder(row.builder, data_dir=tmp_path)
    rng = np.random.default_rng(0)
    splits = {
        split: [(str(key), made_up(builder.info.features, rng)) for key in range(12)]
        for split in SPLITS
    }
    monkeypatch.setattr(type(builder), "_split_generators", lambda *args, **kwargs: splits)
    builder.download_and_prepare()
    split = "test" if "test" in row.splits["test"] else "validation"
    whole = dataclasses.replace(row, splits={"test": split})
    monkeypatch.setitem(DATASETS, name, whole)
    dataset = load(name, "test", 8, 12, data_dir=tmp_path)
    ((images, labels),) = dataset.as_numpy_iterator()
    assert len(dataset.class_names) == row.num_classes
    expected = []
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    for example in builder.as_dataset(split=split, read_config=in_order):
        label = row.label(example) if callable(row.label) else example[row.label].numpy()
        expected.append(np.isin(np.arange(1000), label) if row.is_multi_label else int(label))
    np.testing.assert_array_equal(labels, expected)
    # Zeros and ones are drawn as black and white where the dataset has no other values.
    assert images.max() == (1 if row.scale == 255 else 1 / 127.5 - 1)


@pytest.mark.slow
def test_an_image_without_a_label_is_left_out(tmp_path, monkeypatch):
    builder = tfds.builder("imagenet2012_real", data_dir=tmp_path)
    rng = np.random.default_rng(0)
    examples = [made_up(builder.info.features, rng) for _ in range(4)]
    for example, labels in zip(examples, [[], [3], [4, 5], []], strict=True):
        example["real_label"] = labels
    splits = {"validation": enumerate(examples)}
    monkeypatch.setattr(type(builder), "_split_generators", lambda *args: splits)
    builder.download_and_prepare()
    dataset = load("imagenet2012_real", "test", 8, 4, data_dir=tmp_path)
    ((_, labels),) = dataset.as_numpy_iterator()
    assert sorted(labels.sum(axis=1)) == [1, 2]
    assert dataset.info.num_examples == 2
    assert len(dataset.info.skipped) == 0


@pytest.mark.slow
def test_images_to_predict_of_all_splits_in_any_ranges(data_dir):
    images = find_images(["tfds:photos:small"], data_dir=data_dir)
    whole = images.columns(0, images.num_images)
    assert all(whole["bytes"]) and len(set(whole["id"])) == images.num_images == 72
    for start in range(0, 72, 7):
        part = images.columns(start, min(start + 7, 72))
        for name, values in part.items():
            assert values.tolist() == whole[name][start : start + 7].tolist()
