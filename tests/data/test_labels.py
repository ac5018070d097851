"""The names of the ImageNet classes."""

import hashlib
import importlib.util
import json
import pathlib

import keras
import numpy as np
import pytest

from keras_vit.core.text import LABEL_FILES, check_class_names, imagenet_class_names, read_labels
from keras_vit.data.labels import decode_predictions

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")


def random_logits(batch, num_classes):
    return np.random.default_rng(0).normal(0, 3, (batch, num_classes)).astype("float32")


def softmax(logits):
    exponentials = np.exp(logits.astype("float64"))
    return exponentials / exponentials.sum(-1, keepdims=True)


def torch_with_gradient(logits):
    torch = pytest.importorskip("torch")
    return torch.tensor(logits, requires_grad=True) * 1


def jax_array(logits):
    return pytest.importorskip("jax").numpy.asarray(logits)


def test_imagenet2012_is_what_keras_applications_download():
    index = {str(i): label for i, label in enumerate(read_labels(1000))}
    # The hash that Keras checks, in `keras/src/applications/imagenet_utils.py`.
    digest = hashlib.md5(json.dumps(index).encode()).hexdigest()
    assert digest == "c2c37ea517e94d9795004a39431a14cb"


@pytest.mark.parametrize(
    ("package", "file", "num_classes"),
    [
        ("tensorflow_datasets", "datasets/imagenet2012/labels.txt", 1000),
        ("timm", "data/_info/imagenet_synsets.txt", 1000),
        ("timm", "data/_info/imagenet21k_goog_synsets.txt", 21843),
    ],
)
def test_synsets_are_those_of_other_packages(package, file, num_classes):
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    path = pathlib.Path(found.origin).parent / file
    if not path.exists():
        pytest.skip(f"this release of {package} keeps its labels elsewhere")
    assert path.read_text().split() == [synset for synset, _ in read_labels(num_classes)]


@pytest.mark.parametrize(
    ("num_classes", "index", "label"),
    [
        (1000, 134, ("n02012849", "crane")),
        (1000, 517, ("n03126707", "crane")),
        (21843, 0, ("n00004475", "organism")),
        (21843, 359, ("n01440764", "tench")),
        (21843, 21842, ("n15102894", "knothole")),
        # The two that the release of fall 2011 lacks: google-research/big_transfer#18, with the
        # positions at which Hugging Face's conversion scripts delete them.
        (21843, 9205, ("n03931044", "picture")),
        (21843, 15027, ("n09859684", "bleacher")),
    ],
)
def test_known_labels(num_classes, index, label):
    assert read_labels(num_classes)[index] == label


@pytest.mark.parametrize("num_classes", LABEL_FILES)
def test_label_files_and_class_names(num_classes):
    labels = read_labels(num_classes)
    synsets = [synset for synset, _ in labels]
    assert len(labels) == num_classes
    assert synsets == sorted(set(synsets))
    names = imagenet_class_names(num_classes)
    assert check_class_names(names, num_classes=num_classes) == tuple(names)
    for name, (synset, original) in zip(names, labels, strict=True):
        assert name in (original, f"{original}_{synset}")


@pytest.mark.parametrize(
    ("kind", "num_classes"),
    [
        (np.asarray, 21843),
        (np.ndarray.tolist, 1000),
        (keras.ops.convert_to_tensor, 21843),
        (jax_array, 1000),
        (torch_with_gradient, 1000),
    ],
)
def test_order_and_probabilities(kind, num_classes):
    logits = random_logits(3, num_classes)
    decoded = decode_predictions(kind(logits))
    assert [len(image) for image in decoded] == [5, 5, 5]
    expected = softmax(logits)
    for image, probabilities in zip(decoded, expected, strict=True):
        order = np.argsort(probabilities)[::-1][:5]
        assert [label[:2] for label in image] == [read_labels(num_classes)[i] for i in order]
        np.testing.assert_allclose([label[2] for label in image], probabilities[order], rtol=1e-6)


def test_order_where_probabilities_are_zero_in_floating_point():
    logits = -1e4 * np.arange(1000.0)[None, ::-1]
    (image,) = decode_predictions(logits, top=3)
    assert [label[:2] for label in image] == list(read_labels(1000)[:-4:-1])
    assert [probability for _, _, probability in image] == [1, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_probabilities_stay(dtype):
    probabilities = keras.ops.cast(softmax(random_logits(2, 1000)), dtype)
    for image, row in zip(
        decode_predictions(probabilities),
        keras.ops.convert_to_numpy(keras.ops.cast(probabilities, "float32")),
        strict=True,
    ):
        assert [label[2] for label in image] == sorted(row.tolist(), reverse=True)[:5]


def not_finite():
    logits = random_logits(3, 1000)
    logits[1, 7] = np.nan
    return logits


@pytest.mark.parametrize(
    ("logits", "top", "message"),
    [
        (np.zeros((2, 10)), 5, "`logits` must have the shape"),
        (random_logits(1, 1000), 1001, "`top` must be an integer from 1 to"),
        (not_finite(), 5, "`logits` must be finite.* in row 1"),
        (np.zeros((2, 21843)), 5, "head is zero"),
    ],
)
def test_logits_that_tell_nothing_are_refused(logits, top, message):
    with pytest.raises(ValueError, match=message):
        decode_predictions(logits, top)
