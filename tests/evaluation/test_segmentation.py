"""Segmentation of images of any size, and how well it fits masks."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.data import find_source
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


# Keras's MeanIoU asks JAX for int64, and says so.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
def test_metrics_are_those_of_keras_and_of_the_definition(model, tmp_path):
    source = find_source(f"masks:{write_masks(tmp_path)}", "test")
    found = evaluate_segmentation(model, source)
    from keras_vit.data.sources.masks import examples_of

    mean_iou = keras.metrics.MeanIoU(3, ignore_class=IGNORED)
    pairs = [(mask, segment(model, image).argmax(-1)) for image, mask in examples_of(source)]
    for mask, predicted in pairs:
        mean_iou.update_state(mask, predicted)
    mask, predicted = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    known = mask != IGNORED
    overlaps = [
        np.sum((mask == n) & (predicted == n) & known)
        / np.sum(((mask == n) | (predicted == n)) & known)
        for n in range(3)
    ]
    np.testing.assert_allclose(found.iou, overlaps)
    summary = found.summary()
    assert summary["images"] == 6
    assert summary["mean_iou"] == pytest.approx(float(mean_iou.result()), abs=1e-6)
    assert summary["accuracy"] == pytest.approx(np.mean((mask == predicted)[known]))


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


def test_other_classes(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="`source` must have masks of the model's classes"):
        evaluate_segmentation(model, find_source("digits", "test"))
    monkeypatch.setattr(model, "class_names", ("background", "blue", "red"))
    with pytest.raises(ValueError, match="red"):
        evaluate_segmentation(model, find_source(f"masks:{write_masks(tmp_path)}", "test"))


@pytest.mark.parametrize("stride", [0, 17])
def test_strides_that_leave_gaps(stride, model):
    with pytest.raises(ValueError, match=f"`stride` must be from 1 to 16.* stride={stride}"):
        segment(model, random_image(), stride=stride)


def test_a_segmenter_of_any_size():
    vit = keras_vit.resize(keras_vit.vision_transformer(**TINY))
    model = keras_vit.segmenter(keras_vit.backbone(vit, kind="blocks"), 3)
    with pytest.raises(ValueError, match="of one image size"):
        segment(model, random_image())


def test_images_of_floats_are_refused(model):
    with pytest.raises(ValueError, match="`image` must have the type uint8. Received: float64"):
        segment(model, np.zeros((8, 8, 3)))


def test_an_image_that_would_become_too_large_is_refused(model):
    with pytest.raises(ValueError, match="`image` must cover a window"):
        segment(model, np.zeros((1, 10**6, 3), "uint8"))
