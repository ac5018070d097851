"""Features of datasets, and the cache that they are kept in."""

import keras
import numpy as np
import pytest

from keras_vit import features
from keras_vit.data import load
from keras_vit.evaluation import extraction as evaluation_features
from keras_vit.evaluation.extraction import extract_features, split_features
from keras_vit.models import replace_head
from tests.fixtures.features import tiny_model
from tests.fixtures.images import encode, random_image, write_folder


@pytest.fixture
def model():
    return tiny_model()


@pytest.mark.slow
def test_features_and_labels_belong_together(model, tmp_path):
    """An image that cannot be decoded has neither."""
    root = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    paths = sorted(root.rglob("*.jpg"))
    for path in (paths[3], paths[12]):
        path.write_bytes(b"no image")
    data = load(f"folder:{root}", "train+validation+test", 8, 4)
    found, labels = extract_features(model, data)
    assert len(data.info.skipped) == 2
    assert found.shape == (18, 8)
    np.testing.assert_array_equal(labels, [0] * 9 + [1] * 9)
    images = np.concatenate([images for images, _ in data.as_numpy_iterator()])
    np.testing.assert_allclose(found, features(model, images), rtol=0, atol=1e-5)


class Cache:
    """A folder of images with random features, and a count of their computations."""

    def __init__(self, root, path, monkeypatch):
        self.root, self.path, self.computed = root, path, 0

        def compute(extractor, batches):
            self.computed += 1
            rng = np.random.default_rng(self.computed)
            count = batches.info.num_examples
            return rng.normal(size=(count, 8)).astype("float32"), rng.integers(0, 3, count)

        monkeypatch.setattr(evaluation_features, "_extract", compute)

    def features(self, model, split="train", **options):
        """Return whether they were computed, the features and the labels."""
        before = self.computed
        found = split_features(model, f"folder:{self.root}", split, cache=self.path, **options)
        return self.computed > before, *found[:2]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "photos", ("cat", "dog", "eel"), count=5)
    return Cache(root, tmp_path / "new" / "cache", monkeypatch)


def test_cache_serves_as_long_as_nothing_changed(cache, model, tmp_path):
    computed, expected, labels = cache.features(model)
    assert computed
    # The same model from a file, with another head, later in a process; the folder moved.
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    (tmp_path / "moved").mkdir()
    cache.root = cache.root.rename(tmp_path / "moved" / "photos")
    for same in (model, again, replace_head(model, 7)):
        computed, found, found_labels = cache.features(same, batch_size=3)
        assert not computed
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found_labels, labels)


@pytest.mark.slow
def test_cache_of_something_else_is_not_used(cache, model):
    def is_computed(model=model, **options):
        first, *_ = cache.features(model, **options)
        assert not cache.features(model, **options)[0]
        return first

    assert is_computed()
    assert is_computed(split="test")
    assert is_computed(layers=["block_0", "encoder_norm"])
    assert is_computed(classes=("cat", "dog"))
    assert is_computed(central_crop_from=12)
    assert is_computed(tiny_model(image_size=12))
    # Another activation with the same weights; other weights.
    assert is_computed(tiny_model(activation="gelu"))
    model.get_layer("block_0").weights[0].assign_add(np.full(8, 1e-6))
    assert is_computed(model)
    # Another image of the same size, another label, one more image.
    picture = cache.root / "cat" / "0.jpg"
    changed = bytearray(picture.read_bytes())
    changed[-10] ^= 1
    picture.write_bytes(changed)
    everything = "train+validation+test"
    assert is_computed(split=everything)
    picture.rename(cache.root / "dog" / "9.jpg")
    assert is_computed(split=everything)
    (cache.root / "dog" / "new.png").write_bytes(encode(random_image()))
    assert is_computed(split=everything)


@pytest.mark.slow
def test_a_cache_that_is_damaged_or_of_something_else_is_renewed(cache, model, caplog):
    cache.features(model)
    (path,) = cache.path.iterdir()
    cache.features(tiny_model(activation="gelu"))
    (other,) = set(cache.path.iterdir()) - {path}
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", other.read_bytes()):
        path.write_bytes(content)
        assert cache.features(model)[0]
    assert not cache.features(model)[0]
    # Pickled arrays are not read.
    np.savez(path, features=np.array([{}], object), labels=np.zeros(1), digest="")
    assert cache.features(model)[0]
    assert caplog.text.count("is damaged or has other contents") == 4


def test_features_are_found_though_the_disk_is_full(cache, model, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    _, found, _ = cache.features(model)
    assert len(found) == 12
    assert "features are not kept" in caplog.text
    assert not list(cache.path.iterdir())
