"""Filters and position embeddings, beside scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

import keras_vit
from keras_vit.inspection.analyses import filter_components, position_similarity
from keras_vit.models import vision_transformer
from keras_vit.models.structure import first_kernel
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.tiny import TINY


def trained(**options):
    """As good as trained: no variable has the value that it starts with."""
    model = vision_transformer(**{**TINY, **options})
    randomise(model)
    return model


@pytest.mark.parametrize("options", [{}, {"patch_size": (4, 8), "image_channels": 1}], ids=str)
def test_filter_components_are_scikit_learns(options):
    model = trained(embedding_dim=40, **options)
    kernel = to_numpy(model.get_layer("patch_embedding").projection.kernel).astype("float64")
    expected = PCA(n_components=10).fit(kernel.reshape(-1, 40).T)
    components, shares = filter_components(model, count=10)
    assert components.shape == (10, *kernel.shape[:3])
    # A component's sign has no meaning.
    products = (components.reshape(10, -1) * expected.components_).sum(axis=1)
    np.testing.assert_allclose(np.abs(products), 1, rtol=1e-5)
    np.testing.assert_allclose(shares, expected.explained_variance_ratio_, rtol=1e-5)


@pytest.mark.parametrize("preactivation", [False, True])
def test_filters_of_a_resnet_are_those_it_applies(preactivation):
    options = {"width": 32, "num_classes": 2, "image_size": 32, "preactivation": preactivation}
    resnet = keras_vit.resnet((1,), **options)
    layer = resnet.get_layer("root_conv")
    # Small, so that epsilon counts.
    layer.kernel.assign(to_numpy(layer.kernel) / 1000)
    # A point of light in a channel shows the kernel, turned round.
    point = np.zeros((1, 32, 32, 3), "float32")
    point[0, 15, 15] = 1
    response = to_numpy(layer(point))[0].reshape(-1, 32)
    kernel = first_kernel(resnet)
    summed = kernel.sum(axis=2).reshape(-1, 32)
    # Of stride 2 every other row and column is there.
    seen = [value for value in response if np.abs(value).max() > 0]
    for value in seen:
        assert np.abs(summed - value).max(axis=1).min() < 1e-4 * np.abs(summed).max()
    assert len(seen) >= 9


@pytest.mark.parametrize(
    "options",
    [
        {"image_size": (8, 16)},
        {"num_registers": 2},
        {"pooling": "gap"},
        {"position_embedding": "sincos2d", "image_size": (16, 8)},
        {"position_embedding": "learned2d"},
    ],
    ids=str,
)
def test_position_similarity_is_scikit_learns(options):
    model = trained(**options)
    rows, columns = (pixels // 4 for pixels in model.input_shape[1:3])
    layer = model.get_layer("position_embedding")
    # What is added to tokens of zeros.
    table = to_numpy(layer(np.zeros((1, *layer.input.shape[1:]), "float32")))
    expected = cosine_similarity(table[0, -rows * columns :].astype("float64"))
    similarity = position_similarity(model)
    assert similarity.shape == (rows, columns, rows, columns)
    np.testing.assert_allclose(similarity.reshape(expected.shape), expected, atol=1e-6)
