"""Models of any image size: they give what `resize` gives at each size."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection.analyses import attention_distance, position_similarity
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.resnet import resnet
from keras_vit.models.structure import position_table, stored_grid, token_stride
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.tiny import TINY, images

# The stored size, and others: larger, smaller, one row of patches, and not square.
SIZES = [(16, 16), (32, 32), (8, 8), (4, 12), (24, 40)]
HYBRID = {"resnet_stages": (1, 1), "resnet_width": 32, "patch_size": (1, 2)}


def random_model(**options):
    model = vision_transformer(**{**TINY, **options})
    randomise(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "gap", "position_embedding": "learned2d", "num_registers": 2},
        {"pooling": "map", "position_embedding": "sincos2d"},
        {"pooling": "token_gap", "position_embedding": "none"},
        {"distillation_token": True, "num_registers": 1},
        {"position_placement": "every_layer", "num_registers": 1},
        {"position_placement": "every_layer_shared", "position_embedding": "learned2d"},
        {"position_placement": "every_layer", "position_embedding": "learned2d"},
    ],
    ids=str,
)
def test_the_same_as_resized(options):
    model = random_model(**options)
    free = resize(model, None)
    assert free.input_shape == (None, None, None, 3)
    assert [weight.path for weight in free.weights] == [weight.path for weight in model.weights]
    for size in SIZES[:: 1 if not options else 4]:
        batch = images(2, *size, 3)
        found, expected = to_numpy(free(batch)), to_numpy(resize(model, size)(batch))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        if size == model.input_shape[1:3]:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("position_embedding", ["learned", "sincos2d"])
def test_the_same_in_one_graph(position_embedding):
    """TensorFlow makes one graph for all sizes, whose sizes are tensors; JAX one for each."""
    free = resize(random_model(position_embedding=position_embedding, image_size=(24, 8)), None)
    for size in SIZES:
        batch = images(2, *size, 3)
        expected = to_numpy(resize(free, size)(batch))
        np.testing.assert_allclose(free.predict(batch, verbose=0), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_hybrid():
    model = random_model(**HYBRID, image_size=(16, 32))
    free = resize(model, None)
    assert token_stride(free) == token_stride(model) == (8, 16)
    for size in [(16, 32), (32, 16)]:
        batch = images(2, *size, 3)
        expected = to_numpy(resize(model, size)(batch))
        np.testing.assert_allclose(to_numpy(free(batch)), expected, rtol=0, atol=1e-6)


def test_resnet():
    model = resnet((1,), width=32, num_classes=2, image_size=None)
    assert model.options.image_size is None
    batch = images(1, 18, 23, 3)
    fixed = resize(model, (18, 23))
    np.testing.assert_array_equal(to_numpy(model(batch)), to_numpy(fixed(batch)))
    assert resize(fixed, None).input_shape == (None, None, None, 3)


def test_built_without_a_size():
    model = vision_transformer(**{**TINY, "image_size": None, "patch_size": (40, 16)})
    # As for 224 pixels, as far as the patches tile them.
    assert stored_grid(model) == (5, 14)
    assert model.options.image_size is None
    assert vision_transformer(**{**TINY, "image_size": None, "patch_size": 300}).count_params()


def test_there_and_back():
    model = random_model(image_size=(8, 24))
    free = resize(model, None)
    assert free.options == model.options.replace(image_size=None)
    back = resize(free, (8, 24))
    assert back.get_config() == model.get_config()
    for old, new in zip(model.weights, back.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new.value), to_numpy(old.value))


def test_layers_composed_by_hand():
    inputs = keras.Input((None, None, 3))
    tokens = keras_vit.PatchEmbedding(8, 4)(inputs)
    positions = keras_vit.AddPositionEmbedding(grid_size=(2, 3), patch_size=4)
    tokens = positions(tokens=tokens, images=inputs)
    tokens = keras_vit.TransformerBlock(2, 16)(tokens=tokens)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(tokens))
    batch = images(2, 8, 12, 3)
    fixed = resize(model, (8, 12))
    np.testing.assert_array_equal(to_numpy(fixed(batch)), to_numpy(model(batch)))
    assert resize(fixed, 8).input_shape == (None, 8, 8, 3)


def test_with_other_patches():
    free = resize(random_model(), None)
    smaller = resize(free, patch_size=2)
    assert smaller.input_shape == (None, None, None, 3)
    assert smaller.options.patch_size == (2, 2) and smaller.options.image_size is None
    batch = images(1, 6, 10, 3)
    expected = to_numpy(resize(smaller, (6, 10))(batch))
    np.testing.assert_allclose(to_numpy(smaller(batch)), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_contract(tmp_path):
    free = resize(random_model(remat=True, dropout=0.1, stochastic_depth=0.1), None)
    free.save(tmp_path / "free.keras")
    loaded = keras.models.load_model(tmp_path / "free.keras")
    assert loaded.options == free.options
    for size in SIZES[:2]:
        batch = images(2, *size, 3)
        np.testing.assert_array_equal(to_numpy(loaded(batch)), to_numpy(free(batch)))
    head = replace_head(free, 5)
    assert head.output_shape == (None, 5) and head.input_shape == free.input_shape
    assert keras_vit.features(head, images(2, 8, 12, 3)).shape == (2, 8)


@pytest.mark.slow
def test_half_precision():
    free = resize(random_model(dtype="mixed_bfloat16"), None)
    for size in SIZES[:2]:
        batch = images(2, *size, 3)
        expected = to_numpy(resize(free, size)(batch))
        # Positions are rounded to 8 bits before the interpolation, not after it.
        np.testing.assert_allclose(to_numpy(free(batch)), expected, rtol=0, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"position_embedding": "learned2d", "remat": True}, marks=pytest.mark.large)],
)
def test_training_on_two_sizes(options):
    model = vision_transformer(**{**TINY, **options, "depth": 1, "image_size": None})
    before = [to_numpy(weight.value) for weight in model.trainable_weights]

    def batches():
        for index in range(4):
            side = (16, 24)[index % 2]
            yield images(2, side, 32, 3), np.array([index % 3, 2])

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    history = model.fit(batches(), steps_per_epoch=4, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for weight, old in zip(model.trainable_weights, before, strict=True):
        is_trained = not np.array_equal(to_numpy(weight.value), old)
        # The softmax takes the same off every key.
        assert is_trained or weight.path.endswith("key/bias"), weight.path


@pytest.mark.slow
def test_inspection():
    model = random_model(num_registers=1, depth=1)
    free, batch = resize(model, None), images(2, 8, 12, 3)
    fixed = resize(model, (8, 12))
    for function in (keras_vit.attention_rollout, attention_distance):
        np.testing.assert_allclose(function(free, batch), function(fixed, batch), atol=1e-5)
    scores = keras_vit.attention_maps(free, batch)["block_0"]
    assert scores.shape == (2, 2, 8, 8)
    maps = keras_vit.features(free, batch, layers=["block_0"], as_maps=True)["block_0"]
    assert maps.shape == (2, 2, 3, 8)
    np.testing.assert_array_equal(position_table(free), position_table(model))
    np.testing.assert_array_equal(position_similarity(free), position_similarity(model))


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (
            lambda: resize(vision_transformer(**TINY, position_embedding="rotary"), None),
            "`image_size` must be given for rotary",
        ),
        (
            lambda: vision_transformer(
                **{**TINY, "image_size": None, "position_embedding": "rotary"}
            ),
            "`image_size` must be given for rotary",
        ),
        (
            lambda: resize(vision_transformer(**TINY, position_embedding="relative"), None),
            "`image_size` must be given for .* relative",
        ),
        (
            lambda: resize(vision_transformer(**TINY, axial=True, pooling="gap"), None),
            "`image_size` must be given for .* axial",
        ),
        (lambda: free()(images(1, 18, 16, 3)), r"multiple of \(4, 4\).*\(18, 16\)"),
        (lambda: free().predict(images(1, 16, 30, 3), verbose=0), r"multiple of \(4, 4\)"),
        (lambda: free(position_embedding="none")(images(1, 18, 16, 3)), r"multiple of \(4, 4\)"),
        (lambda: free(**HYBRID)(images(1, 16, 24, 3)), r"multiple of \(1, 2\)"),
        (lambda: keras_vit.features(free(), images(1, 18, 16, 3)), r"multiple of \(4, 4\)"),
        (
            lambda: keras_vit.features(free(), images(1, 16, 16, 1)),
            "incompatible with the",
        ),
        (
            lambda: masked_patch_predictor(free()),
            "`model` must be of one image size",
        ),
        (
            lambda: keras_vit.AddPositionEmbedding((4, 4), 4)(np.ones((1, 16, 8))),
            "the call have images",
        ),
        (
            lambda: keras_vit.AddPositionEmbedding(None, 4)(
                np.ones((1, 16, 8)), images(1, 8, 8, 3)
            ),
            "`grid_size` must be a positive integer or a pair.*None",
        ),
        (lambda: keras_vit.AddPositionEmbedding((4, 0), 4), "`grid_size` must be a positive"),
        (lambda: keras_vit.AddPositionEmbedding((4, 4), 0), "`patch_size` must be a positive"),
    ],
)
def test_wrong_argument(fail, message):
    with pytest.raises(ValueError, match=message):
        fail()


def free(**options):
    return vision_transformer(**{**TINY, **options, "image_size": None})
