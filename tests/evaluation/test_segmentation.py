"""Segmentation of images of any size, and how well it fits masks."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.data import find_source
from keras_vit.data.sources.masks import examples_of
from keras_vit.evaluation import evaluate_segmentation, segment
from tests.fixtures.images import random_image
from tests.fixtures.masks import IGNORED, write_masks
from tests.fixtures.tiny import TINY


@pytest.fixture(scope="module")
def model():
    vit = keras_vit.vision_transformer(**{**TINY, "image_size": (16, 24)})
    made = keras_vit.segmenter(keras_vit.backbone(vit, kind="blocks"), 3)
    head = made.get_layer("head").kernel
    head.assign(np.random.default_rng(0).normal(size=head.shape))
    return made


def logits_of(model, image):
    return model.predict(image[None] / np.float32(127.5) - 1, verbose=0)[0]


def test_a_window_that_covers_the_image_is_one_pass(model):
    image = random_image(16, 24)
    np.testing.assert_allclose(segment(model, image), logits_of(model, image), atol=1e-6)
    np.testing.assert_allclose(segment(model, image, stride=4), segment(model, image), atol=1e-6)


def test_overlapping_windows_are_averaged(model):
    image = random_image(16, 40)
    left, right = logits_of(model, image[:, :24]), logits_of(model, image[:, 16:])
    expected = np.concatenate([left[:, :16], (left[:, 16:] + right[:, :8]) / 2, right[:, 8:]], 1)
    np.testing.assert_allclose(segment(model, image), expected, atol=1e-5)


@pytest.mark.parametrize("size", [(7, 9), (64, 30), (200, 24), (16, 1)])
def test_images_of_any_size(size, model):
    assert segment(model, random_image(*size), stride=8).shape == (*size, 3)


# Keras's IoU asks JAX for int64, and says so.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
def test_metrics_are_those_of_keras(model, tmp_path):
    source = find_source(f"masks:{write_masks(tmp_path)}", "test")
    found = evaluate_segmentation(model, source)
    pairs = [(mask, segment(model, image).argmax(-1)) for image, mask in examples_of(source)]
    masks, predicted = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    for number, iou in enumerate(found.iou):
        metric = keras.metrics.IoU(3, [number], ignore_class=IGNORED)
        assert iou == pytest.approx(float(metric(masks, predicted)), abs=1e-6)
    assert found.summary() == {
        "images": 6,
        "mean_iou": pytest.approx(np.mean(found.iou)),
        "accuracy": pytest.approx(np.mean((masks == predicted)[masks != IGNORED])),
    }


@pytest.mark.slow
def test_what_cannot_be_read_is_skipped(model, tmp_path, caplog):
    write_masks(tmp_path)
    (tmp_path / "test" / "masks" / "3.png").write_bytes(b"no picture")
    source = find_source(f"masks:{tmp_path}", "test")
    assert evaluate_segmentation(model, source).images == 5
    assert "1 of 6 images were skipped" in caplog.text
    for path in (tmp_path / "test" / "masks").iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(ValueError, match="6 of 6"):
        evaluate_segmentation(model, source, max_skipped=1.0)


def test_other_classes_are_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "class_names", ("background", "blue", "red"))
    with pytest.raises(ValueError, match="must have the model's 3 classes"):
        evaluate_segmentation(model, find_source(f"masks:{write_masks(tmp_path)}", "test"))


@pytest.mark.parametrize(
    ("image", "stride", "message"),
    [
        # It would leave gaps.
        (random_image(), 17, "`stride` must be from 1 to 16"),
        (np.zeros((8, 8, 3)), 8, "`image` must have the type uint8"),
        # It would become too large.
        (np.zeros((1, 10**6, 3), "uint8"), 8, "`image`, resized to cover"),
    ],
    ids=["stride", "floats", "thin"],
)
def test_images_that_cannot_be_segmented_are_refused(image, stride, message, model):
    with pytest.raises(ValueError, match=message):
        segment(model, image, stride=stride)
