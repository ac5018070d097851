"""Models of other papers, and ablations, in training, surgery, inspection and serving."""

import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from tests.fixtures.contract import check_model, to_numpy
from tests.fixtures.models import ABLATIONS, FAMILIES, TOWERS, small_classifier
from tests.fixtures.tiny import TINY, images

ALL = pytest.mark.parametrize("name", [*TOWERS, *ABLATIONS])


@pytest.mark.slow
@ALL
def test_contract(name, tmp_path):
    """Configuration, `.keras` file and training; with dropout where the model has any."""
    options = {**TINY, **FAMILIES[name]}
    check_model(vision_transformer(**options, remat=True, dropout=0.1), tmp_path)


@pytest.mark.slow
@ALL
def test_mixed_precision(name):
    model, exact = small_classifier(name, dtype="mixed_bfloat16"), small_classifier(name)
    exact.set_weights(model.get_weights())
    batch = images(2, 16, 24, 3)
    logits = model.predict(batch, verbose=0)
    assert logits.dtype == "float32"
    scale = np.abs(to_numpy(exact(batch))).max()
    np.testing.assert_allclose(logits, to_numpy(exact(batch)), rtol=0, atol=0.05 * scale)


@pytest.mark.slow
@ALL
def test_features_and_attention(name):
    model = small_classifier(name)
    batch = images(2, 16, 24, 3)
    head = model.get_layer("head")
    representation = keras_vit.features(model, batch)
    np.testing.assert_allclose(to_numpy(head(representation)), to_numpy(model(batch)), atol=1e-5)
    maps = keras_vit.features(model, batch, layers=["block_1"], as_maps=True)["block_1"]
    assert maps.shape == (2, 4, 6, 8)
    tokens = model.get_layer("block_0").output.shape[1]
    attention = keras_vit.attention_maps(model, batch)
    axes = ("/rows", "/columns") if name == "axial" else ("",)
    assert list(attention) == [f"block_{index}{axis}" for index in (0, 1) for axis in axes]
    for scores in attention.values():
        assert scores.shape == (2, 2, tokens, tokens)
        np.testing.assert_allclose(scores.sum(-1), 1, atol=1e-5)
    assert keras_vit.attention_rollout(model, batch).shape == (2, 4, 6)


@ALL
def test_the_scores_are_those_of_the_outputs(name):
    """The path with scores, and the fused one, compute the same."""
    model = small_classifier(name)
    block = model.get_layer("block_0")
    if name == "axial":
        block = block.columns
    tokens = images(2, model.get_layer("block_0").input.shape[1], 8)
    with_scores, _ = block(tokens, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(with_scores), to_numpy(block(tokens)), atol=1e-6)


@ALL
def test_surgery(name):
    model = small_classifier(name)
    model.get_layer("block_0").trainable = False
    larger = keras_vit.resize(model, (24, 32))
    assert larger.options == model.options.replace(image_size=(24, 32))
    assert to_numpy(larger(images(1, 24, 32, 3))).shape == (1, 3)
    if name == "dinov3":
        # Rotary positions are computed from the grid.
        back, batch = keras_vit.resize(larger, (16, 24)), images(2, 16, 24, 3)
        np.testing.assert_array_equal(to_numpy(back(batch)), to_numpy(model(batch)))
    other = keras_vit.replace_head(model, 5)
    assert not to_numpy(other(images(2, 16, 24, 3))).any()
    assert other.options == model.options.replace(
        num_classes=5, projection_dim=None, unit_norm=False
    )
    assert not other.get_layer("block_0").trainable
    assert type(other.get_layer("head")) is type(model.get_layer("head"))
    assert masked_patch_predictor(model).output.shape == (None, 24, 512)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the files are those of TensorFlow")
@ALL
def test_exports(name, tmp_path):
    """A SavedModel and an ONNX file give the logits of the model, with its names of classes."""
    import tensorflow as tf

    from keras_vit.serving.runner import load_runner

    model = small_classifier(name, depth=1)
    model.class_names = ("cat", "dog", "owl")
    batch = images(3, 16, 24, 3)
    expected = model.predict(batch, verbose=0)
    version = keras_vit.export(model, tmp_path / "served")
    served = tf.saved_model.load(version).signatures["float"](images=tf.constant(batch))
    np.testing.assert_allclose(served["logits"], expected, rtol=0, atol=1e-5)
    best = np.array(model.class_names)[expected.argmax(-1)]
    assert [label.decode() for label in served["top_k_labels"].numpy()[:, 0]] == best.tolist()
    run = load_runner(keras_vit.export(model, tmp_path, format="onnx"))
    np.testing.assert_allclose(run(batch), expected, rtol=0, atol=1e-5)
