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


def torch_bfloat16(logits):
    return torch_with_gradient(logits).bfloat16()


def jax_array(logits):
    return pytest.importorskip("jax").numpy.asarray(logits)


def keras_bfloat16(logits):
    return keras.ops.cast(keras.ops.convert_to_tensor(logits), "bfloat16")


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
        (1000, 0, ("n01440764", "tench")),
        (1000, 2, ("n01484850", "great_white_shark")),
        (1000, 134, ("n02012849", "crane")),
        (1000, 517, ("n03126707", "crane")),
        (1000, 999, ("n15075141", "toilet_tissue")),
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
    assert all(len(synset) == 9 and synset[0] == "n" and synset[1:].isdigit() for synset in synsets)
    assert all(name for _, name in labels)
    names = imagenet_class_names(num_classes)
    assert check_class_names(names, num_classes=num_classes) == tuple(names)
    for name, (synset, original) in zip(names, labels, strict=True):
        assert name in (original, f"{original}_{synset}")


def test_the_classes_of_one_are_in_the_other_but_for_one():
    assert set(read_labels(1000)).difference(read_labels(21843)) == {("n04399382", "teddy")}


@pytest.mark.parametrize("num_classes", LABEL_FILES)
@pytest.mark.parametrize(
    "kind",
    [np.asarray, np.ndarray.tolist, keras.ops.convert_to_tensor, jax_array, torch_with_gradient],
)
def test_order_and_probabilities(kind, num_classes):
    logits = random_logits(3, num_classes)
    decoded = decode_predictions(kind(logits))
    assert [len(image) for image in decoded] == [5, 5, 5]
    expected = softmax(logits)
    for image, probabilities in zip(decoded, expected, strict=True):
        order = np.argsort(probabilities)[::-1][:5]
        assert [label[:2] for label in image] == [read_labels(num_classes)[i] for i in order]
        assert all(type(probability) is float for _, _, probability in image)
        np.testing.assert_allclose([label[2] for label in image], probabilities[order], rtol=1e-6)


@pytest.mark.parametrize("kind", [keras_bfloat16, torch_bfloat16])
def test_half_precision(kind):
    logits = np.zeros((1, 1000), "float32")
    logits[0, 1] = 8
    ((label,),) = decode_predictions(kind(logits), top=1)
    assert label == ("n01443537", "goldfish", pytest.approx(np.exp(8) / (np.exp(8) + 999)))


def test_all_classes_sum_to_one():
    (image,) = decode_predictions(random_logits(1, 1000), top=1000)
    probabilities = [probability for _, _, probability in image]
    assert sum(probabilities) == pytest.approx(1)
    assert probabilities == sorted(probabilities, reverse=True)
    assert {label[:2] for label in image} == set(read_labels(1000))


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


def test_an_empty_batch():
    assert decode_predictions(np.zeros((0, 1000))) == []


def changed(place, value, num_classes=1000):
    logits = random_logits(3, num_classes)
    logits[place] = value
    return logits


@pytest.mark.parametrize(
    ("logits", "top", "message"),
    [
        (np.zeros(1000), 5, r"`logits` must have the shape .*Received: logits.shape=\(1000,\)"),
        (np.zeros((2, 10)), 5, r"\(batch, 21843\) .*Received: logits.shape=\(2, 10\)"),
        (np.zeros((2, 21841)), 5, r"Received: logits.shape=\(2, 21841\)"),
        (np.zeros((1, 2, 1000)), 5, r"Received: logits.shape=\(1, 2, 1000\)"),
        (random_logits(1, 1000), 0, "`top` must be an integer from 1 to .* Received: top=0"),
        (random_logits(1, 1000), 1001, "the 1000 classes. Received: top=1001"),
        (random_logits(1, 1000), 2.0, "Received: top=2.0"),
        (changed((1, 7), np.nan), 5, r"`logits` must be finite.*NaN .* in row 1 \(1 of 3 rows\)"),
        (changed((1, 7), np.inf), 5, "`logits` must be finite"),
        (np.zeros((2, 21843)), 5, r"head is zero: .*equal to 0.0 in row 0 \(2 of 2 rows\)"),
        (changed(2, -10, 21843), 5, r"equal to -10.0 in row 2 \(1 of 3 rows\)"),
        (np.full((1, 1000), 1e-3), 5, "head is zero"),
    ],
)
def test_mistakes(logits, top, message):
    with pytest.raises(ValueError, match=message):
        decode_predictions(logits, top)
