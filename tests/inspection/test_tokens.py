"""Compare principal components and norms of tokens with scikit-learn and NumPy."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

import keras_vit
from keras_vit.inspection.analyses import find_outliers, patch_colors, token_norms
from keras_vit.models import vision_transformer
from tests.fixtures.contract import randomise
from tests.fixtures.tiny import TINY, images

# Rectangles, tokens that are no patches, each kind of output token.
OPTIONS = [
    {"num_registers": 2},
    {"pooling": "gap", "image_size": (8, 24)},
    {"pooling": "map", "num_registers": 1},
]


@pytest.fixture(params=OPTIONS, ids=str)
def case(request):
    """A model and its images."""
    model = vision_transformer(**{**TINY, **request.param})
    randomise(model)
    return model, images(4, *model.input_shape[1:])


@pytest.mark.backends("tensorflow", "jax", "torch")
def test_colors_are_scikit_learns_components(case):
    model, batch = case
    colors, is_foreground = patch_colors(model, batch)
    tokens = keras_vit.features(model, batch, ["encoder_norm"], as_maps=True)["encoder_norm"]
    first = PCA(1).fit_transform(tokens.reshape(-1, 8)).reshape(tokens.shape[:3])
    np.testing.assert_array_equal(is_foreground, first * np.sign(first[is_foreground][0]) > 0)
    is_inner = np.zeros_like(is_foreground)
    is_inner[:, 1:-1, 1:-1] = True
    assert is_foreground[~is_inner].mean() <= 0.5
    assert not colors[~is_foreground].any()
    expected = PCA(3).fit_transform(tokens[is_foreground])
    for channel, component in zip(colors[is_foreground].T, expected.T, strict=True):
        assert channel.min() == 0 and channel.max() == 1
        np.testing.assert_allclose(np.corrcoef(channel, component)[0, 1], 1, rtol=1e-5)


def test_a_layer_without_tokens_is_refused():
    with pytest.raises(ValueError, match=r"`layer` must be one of \('block_0', 'block_1'"):
        patch_colors(vision_transformer(**TINY), images(1, 16, 16, 3), layer="pooling")


@pytest.mark.backends("tensorflow", "jax", "torch")
def test_norms_are_numpys(case):
    model, batch = case
    tokens = keras_vit.features(model, batch, ["block_0", "block_1"])
    expected = [np.linalg.norm(array, axis=-1) for array in tokens.values()]
    np.testing.assert_allclose(token_norms(model, batch, batch_size=3), expected, rtol=1e-5)


def test_outliers_are_patches_of_twice_the_median():
    model = vision_transformer(**{**TINY, "num_registers": 1})
    norms = np.array([[[9.0, 9, 1, 1, 2, 3.5], [9, 9, 1, 4, 4, 4]]])
    expected = [[[False, False, False, True], [False] * 4]]
    np.testing.assert_array_equal(find_outliers(model, norms), expected)


@pytest.mark.parametrize("image_size", [16, None])
def test_tokens_of_a_decoder_are_not_those_of_patches(image_size):
    model, batch = vision_transformer(**{**TINY, "image_size": image_size}), images(2, 16, 16, 3)
    backbone = keras_vit.backbone(model, ("encoder_norm",), "blocks")
    # The decoder has as many tokens as the encoder.
    segmenter = keras_vit.segmenter(backbone, num_classes=1, head="mask")
    assert find_outliers(segmenter, token_norms(segmenter, batch)).shape == (2, 2, 16)
    colors, _ = patch_colors(segmenter, batch)
    np.testing.assert_array_equal(colors, patch_colors(model, batch)[0])


def test_tokens_that_are_not_finite_have_no_colors():
    model = vision_transformer(**TINY)
    weight = model.get_layer("block_1").weights[0]
    weight.assign(weight * np.nan)
    colors, is_foreground = patch_colors(model, images(2, 16, 16, 3))
    assert not colors.any() and not is_foreground.any()
