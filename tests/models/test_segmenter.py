"""Segmenters: logits of each pixel, by a linear head and by Segmenter's masks."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models.dense import MaskProduct, ResizeLike
from keras_vit.models.structure import find_blocks, stored_size, token_stride
from tests.fixtures.contract import randomise
from tests.fixtures.tiny import TINY, images


def vit(**options):
    return keras_vit.vision_transformer(**{**TINY, "image_size": (32, 48), **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "head"), [("simple", "linear"), ("dpt", "mask"), ("blocks", "linear")]
)
def test_logits_of_pixels(head, kind, tmp_path):
    maps = keras_vit.backbone(vit(), kind=kind, channels=6)
    model = keras_vit.segmenter(maps, 5, head)
    # A new linear head is zero.
    randomise(model)
    pictures = images(2, 32, 48, 3)
    logits = model.predict(pictures, verbose=0)
    assert logits.shape == (2, 32, 48, 5)
    assert logits.dtype == np.float32
    model.class_names = tuple("abcde")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.class_names == model.class_names
    np.testing.assert_array_equal(again.predict(pictures, verbose=0), logits)


@pytest.mark.parametrize("kind", ["simple", "dpt"])
def test_a_model_of_any_size_knows_its_stride(kind):
    """The layers of pyramids have strides, too."""
    model = keras_vit.segmenter(keras_vit.backbone(keras_vit.resize(vit()), kind=kind), 2)
    assert token_stride(model) == token_stride(vit())
    assert stored_size(model) == (32, 48)


def test_its_decoder_is_no_part_of_the_encoder():
    maps = keras_vit.backbone(vit(), ("encoder_norm",), "blocks")
    model = keras_vit.segmenter(maps, 2, "mask")
    assert [block.name for block in find_blocks(model)] == [b.name for b in find_blocks(vit())]


def test_masks_are_products_of_embeddings():
    layer = MaskProduct(3)
    tokens = images(2, 3 + 4, 8)
    masks = ops.convert_to_numpy(layer(tokens))
    classes, patches = (
        tokens[:, part] @ dense.get_weights()[0]
        for part, dense in ((slice(3), layer.classes), (slice(3, None), layer.patches))
    )
    classes, patches = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (classes, patches))
    products = patches @ classes.swapaxes(1, 2)
    deviation = np.sqrt(products.var(-1, keepdims=True) + 1e-5)
    expected = (products - products.mean(-1, keepdims=True)) / deviation
    np.testing.assert_allclose(masks, expected, atol=1e-5)


def test_interpolation_has_half_pixel_centers():
    maps = np.array([0.0, 4.0], "float32").reshape(1, 1, 2, 1)
    wide = ResizeLike()(maps, np.zeros((1, 1, 4, 1)))
    np.testing.assert_allclose(ops.convert_to_numpy(wide).ravel(), [0, 1, 3, 4], atol=1e-6)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="SavedModels are of TensorFlow")
@pytest.mark.parametrize(("kind", "head"), [("simple", "linear"), ("blocks", "mask")])
def test_any_size_in_one_graph(kind, head, tmp_path):
    """`predict` of a second size makes a graph for all sizes, and so does an export."""
    maps = keras_vit.backbone(keras_vit.resize(vit()), kind=kind, channels=8)
    model = keras_vit.segmenter(maps, 2, head)
    randomise(model)
    for size in ((32, 48), (64, 32)):
        pictures = images(1, *size, 3)
        logits = model.predict(pictures, verbose=0)
        assert logits.shape == (1, *size, 2)
        expected = ops.convert_to_numpy(model(pictures))
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    keras_vit.export(model, tmp_path / "served", class_names=["a", "b"])
