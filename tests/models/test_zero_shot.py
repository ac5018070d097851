"""Zero-shot classifiers are those of open_clip, and classifiers like others."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer, zero_shot
from keras_vit.models.features import features
from keras_vit.models.resnet import resnet
from keras_vit.models.structure import check_classifier, has_zero_head
from keras_vit.serving.runner import model_runner
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import FAMILIES
from tests.fixtures.reference import read_npz
from tests.fixtures.tiny import TINY, images
from tests.fixtures.zero_shot import NAMES, probabilities, texts, tower_and_images


@pytest.fixture(scope="module")
def tower():
    return tower_and_images()


def small_tower(family="siglip", **options):
    model = vision_transformer(**{**TINY, **FAMILIES[family], "num_classes": 0, **options})
    randomise(model)
    return model


def embeddings(classes=3, width=8):
    return np.random.default_rng(1).normal(size=(classes, width))


def test_logits_are_those_of_open_clip(tower):
    model, batch = tower
    theirs = texts()
    new = zero_shot(model, theirs["text_embeds"], NAMES, scale=theirs["scale"])
    np.testing.assert_allclose(to_numpy(new(batch)), theirs["logits"], rtol=0, atol=1e-6)


def test_probabilities_at_the_scale_of_released_models(tower):
    model, batch = tower
    text_embeds, image_embeds = texts()["text_embeds"], read_npz("open_clip_vit.io.npz")
    new = zero_shot(model, text_embeds)
    expected = probabilities(image_embeds["image_embeds"], text_embeds, 100)
    found = to_numpy(keras.ops.softmax(new(batch)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{"embeddings": np.zeros((3, 8))}, {"scale": np.nan}], ids=str)
def test_embeddings_without_a_direction_are_refused(changes):
    arguments = {"embeddings": embeddings(), **changes}
    with pytest.raises(ValueError, match="must be finite, and no row"):
        zero_shot(small_tower(), **arguments)


def test_logits_of_siglip():
    """The scale times the cosine of the angle, and a bias."""
    model, batch, text = small_tower(), images(4, 16, 16, 3), embeddings()
    image = to_numpy(model(batch)).astype("float64")
    cosine = (
        (image @ text.T) / np.linalg.norm(image, axis=1)[:, None] / np.linalg.norm(text, axis=1)
    )
    found = to_numpy(zero_shot(model, text, scale=112.7, bias=-12.9)(batch))
    np.testing.assert_allclose(found, 112.7 * cosine - 12.9, rtol=0, atol=1e-4)


def test_it_is_a_classifier_with_options_and_names():
    new = zero_shot(small_tower(), embeddings(), NAMES)
    assert check_classifier(new) == 3 and not has_zero_head(new)
    assert (new.options.num_classes, new.options.unit_norm, new.class_names) == (3, True, NAMES)


def test_features_are_normalized_embeddings():
    model, batch = small_tower("clip"), images(4, 16, 16, 3)
    image = to_numpy(model(batch))
    expected = image / np.linalg.norm(image, axis=1, keepdims=True)
    found = features(zero_shot(model, embeddings(width=6)), batch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_keras_file_keeps_it(tmp_path):
    model, batch = zero_shot(small_tower("clip"), embeddings(width=6), NAMES), images(2, 16, 16, 3)
    model.thresholds = (0.2, 0.5, 0.8)
    model.save(tmp_path / "model.keras")
    for load in (keras.models.load_model, keras_vit.from_checkpoint):
        loaded = load(tmp_path / "model.keras")
        np.testing.assert_array_equal(to_numpy(loaded(batch)), to_numpy(model(batch)))
        assert (loaded.options.unit_norm, loaded.class_names) == (True, NAMES)
        assert loaded.thresholds == model.thresholds


def test_other_classes_replace_the_head():
    model, batch = small_tower("clip"), images(2, 16, 16, 3)
    again = zero_shot(zero_shot(model, embeddings(5, 6)), embeddings(3, 6), NAMES)
    expected = zero_shot(model, embeddings(3, 6), NAMES)
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(expected(batch)))
    assert [layer.name for layer in again.layers] == [layer.name for layer in expected.layers]


@pytest.mark.slow
def test_a_new_head_has_no_unit_norm(tmp_path):
    model = zero_shot(small_tower("clip"), embeddings(width=6))
    model.save(tmp_path / "model.keras")
    for new in (
        keras_vit.replace_head(model, 5),
        keras_vit.from_checkpoint(tmp_path / "model.keras", num_classes=5),
    ):
        names = [layer.name for layer in new.layers]
        assert names[-2:] == ["pooling", "head"]
        options = new.options
        assert (options.num_classes, options.projection_dim, options.unit_norm) == (5, None, False)


def test_the_tower_stays_frozen_and_the_head_is_trained():
    model = small_tower("clip")
    model.trainable = False
    trained = zero_shot(model, embeddings(width=6)).trainable_weights
    assert [weight.path for weight in trained] == ["head/kernel", "head/bias"]


def test_the_tower_does_not_change():
    model = small_tower()
    before = [to_numpy(weight.value) for weight in model.weights]
    new = zero_shot(model, embeddings())
    for weight in new.weights:
        weight.assign(weight + 1)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight.value), value)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the runner decodes images in TensorFlow")
def test_the_norm_is_computed_in_float32():
    """The square of this norm is infinite in float16."""
    tower = small_tower("clip")
    kernel = tower.get_layer("projection").kernel
    kernel.assign(kernel * 1000)
    batch = images(4, 16, 16, 3)
    assert np.linalg.norm(to_numpy(tower(batch)), axis=1).min() > 256
    model = zero_shot(tower, embeddings(width=6))
    half = model_runner(model, ("logits",), 4, dtype="float16").outputs(batch)["logits"]
    np.testing.assert_allclose(half, to_numpy(model(batch)), rtol=0, atol=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zero_shot(small_tower(), embeddings(width=7)), "`embeddings` must be .classes"),
        (lambda: zero_shot(small_tower(), embeddings()[0]), "`embeddings` must be .classes"),
        (
            lambda: zero_shot(vision_transformer(**{**TINY, "pooling": None}), embeddings()),
            "`embeddings` must be .classes",
        ),
        (lambda: zero_shot(small_tower(), embeddings(), NAMES[:2]), "names 3 classes"),
        (
            lambda: zero_shot(resnet((1,), 32, num_classes=0, image_size=16), embeddings()),
            "must be a Vision Transformer",
        ),
        (lambda: zero_shot(small_tower("deit"), embeddings(width=16)), "nor `unit_norm`"),
    ],
)
def test_what_is_no_zero_shot_classifier_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
