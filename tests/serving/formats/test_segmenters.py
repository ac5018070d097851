"""Exports of segmenters return the model's logits, and masks."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.serving.export import export
from keras_vit.serving.runner import load_runner
from tests.fixtures.images import encode, random_image
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.slow


def segmenter(head="linear"):
    maps = keras_vit.backbone(keras_vit.vision_transformer(**TINY), ("encoder_norm",), "blocks")
    model = keras_vit.segmenter(maps, 3, head)
    for index, weight in enumerate(model.get_layer("head").weights):
        weight.assign(np.random.default_rng(index).normal(size=weight.shape))
    return model


@pytest.mark.parametrize("head", ["linear", "mask"])
def test_signatures_return_logits_and_masks(head, tmp_path):
    model = segmenter(head)
    path = export(model, tmp_path, on_bad_image="flag")
    signatures = tf.saved_model.load(str(path)).signatures
    pictures = images(2, 16, 16, 3)
    found = signatures["float"](images=tf.constant(pictures))
    logits = model.predict(pictures, verbose=0)
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    np.testing.assert_array_equal(found["masks"], found["logits"].numpy().argmax(-1))
    answers = signatures["serving_default"](
        image_bytes=tf.constant([encode(random_image()), b"text"])
    )
    assert answers["is_bad"].numpy().tolist() == [False, True]
    assert answers["masks"].shape == (2, 16, 16)
    assert not answers["logits"][1].numpy().any()


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_masks_of_queries_in_other_formats(format, tmp_path):
    for package in ("tf2onnx", "onnxruntime", "openvino"):
        pytest.importorskip(package)
    model = segmenter("mask")
    path = export(model, tmp_path, format=format)
    pictures = images(2, 16, 16, 3)
    expected = model.predict(pictures, verbose=0)
    np.testing.assert_allclose(load_runner(path)(pictures), expected, atol=1e-4)
