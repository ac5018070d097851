"""Models of any image size: they give what `resize` gives at each size."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection.analyses import attention_distance, position_similarity
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.resnet import resnet
from keras_vit.models.structure import stored_grid, token_stride
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
    ("options", "sizes"),
    [
        ({}, SIZES),
        ({"image_size": (16, 32), **HYBRID}, [(16, 32), (32, 16)]),
        *(
            (options, SIZES[::4])
            for options in (
                {"dtype": "mixed_bfloat16"},
                {"pooling": "gap", "position_embedding": "learned2d", "num_registers": 2},
                {"pooling": "map", "position_embedding": "sincos2d"},
                {"pooling": "token_gap", "position_embedding": "none"},
                {"distillation_token": True, "num_registers": 1},
                {"position_placement": "every_layer", "num_registers": 1},
                {"position_placement": "every_layer_shared", "position_embedding": "learned2d"},
                {"position_placement": "every_layer", "position_embedding": "learned2d"},
            )
        ),
    ],
    ids=str,
)
def test_the_same_as_resized(options, sizes):
    model = random_model(**options)
    free = resize(model, None)
    assert free.input_shape == (None, None, None, 3)
    assert [weight.path for weight in free.weights] == [weight.path for weight in model.weights]
    assert token_stride(free) == token_stride(model)
    # Positions in half precision are rounded to 8 bits before the interpolation, not after it.
    tolerance = 0.02 if "dtype" in options else 1e-6
    for size in sizes:
        batch = images(2, *size, 3)
        found, expected = to_numpy(free(batch)), to_numpy(resize(model, size)(batch))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("position_embedding", ["learned", "sincos2d"])
def test_the_same_in_one_graph(position_embedding):
    """TensorFlow makes one graph for all sizes, whose sizes are tensors; JAX one for each."""
    free = resize(random_model(position_embedding=position_embedding, image_size=(24, 8)), None)
    for size in SIZES:
        batch = images(2, *size, 3)
        expected = to_numpy(resize(free, size)(batch))
        np.testing.assert_allclose(free.predict(batch, verbose=0), expected, rtol=0, atol=1e-6)


def test_a_resnet_of_any_size():
    model = resnet((1,), width=32, num_classes=2, image_size=None)
    batch = images(1, 18, 23, 3)
    fixed = resize(model, (18, 23))
    np.testing.assert_array_equal(to_numpy(model(batch)), to_numpy(fixed(batch)))
    assert resize(fixed, None).input_shape == (None, None, None, 3)


def test_a_new_model_has_positions_for_224_pixels():
    """As far as the patches tile them."""
    model = vision_transformer(**{**TINY, "image_size": None, "patch_size": (40, 16)})
    assert stored_grid(model) == (5, 14)


def test_there_and_back():
    model = random_model(image_size=(8, 24))
    free = resize(model, None)
    assert free.options == model.options.replace(image_size=None)
    back = resize(free, (8, 24))
    assert back.get_config() == model.get_config()
    for old, new in zip(model.weights, back.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new.value), to_numpy(old.value))


def test_with_other_patches():
    smaller = resize(resize(random_model(), None), patch_size=2)
    assert smaller.options.patch_size == (2, 2) and smaller.options.image_size is None
    batch = images(1, 6, 10, 3)
    expected = to_numpy(resize(smaller, (6, 10))(batch))
    np.testing.assert_allclose(to_numpy(smaller(batch)), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_files_and_another_head(tmp_path):
    free = resize(random_model(remat=True, dropout=0.1, stochastic_depth=0.1), None)
    free.save(tmp_path / "free.keras")
    loaded = keras.models.load_model(tmp_path / "free.keras")
    assert loaded.options == free.options
    for size in SIZES[:2]:
        batch = images(2, *size, 3)
        np.testing.assert_array_equal(to_numpy(loaded(batch)), to_numpy(free(batch)))
    head = replace_head(free, 5)
    assert head.output_shape == (None, 5) and head.input_shape == free.input_shape


@pytest.mark.slow
def test_training_on_two_sizes():
    model = vision_transformer(**{**TINY, "depth": 1, "image_size": None})
    before = [to_numpy(weight.value) for weight in model.trainable_weights]

    def batches():
        for index in range(4):
            side = (16, 24)[index % 2]
            yield images(2, side, 32, 3), np.array([index % 3, 2])

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(batches(), steps_per_epoch=4, shuffle=False, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        is_trained = not np.array_equal(to_numpy(weight.value), old)
        # The softmax takes the same off every key.
        assert is_trained or weight.path.endswith("key/bias"), weight.path


@pytest.mark.slow
def test_analyses():
    model = random_model(num_registers=1, depth=1)
    free, batch = resize(model, None), images(2, 8, 12, 3)
    fixed = resize(model, (8, 12))
    for function in (keras_vit.attention_rollout, attention_distance):
        np.testing.assert_allclose(function(free, batch), function(fixed, batch), atol=1e-5)
    maps = keras_vit.features(free, batch, layers=["block_0"], as_maps=True)["block_0"]
    assert maps.shape == (2, 2, 3, 8)
    np.testing.assert_array_equal(position_similarity(free), position_similarity(model))


def free(**options):
    return vision_transformer(**{**TINY, **options, "image_size": None})


@pytest.mark.parametrize(
    ("options", "size", "multiple"),
    [
        ({}, (18, 16), r"\(4, 4\)"),
        ({"position_embedding": "none"}, (18, 16), r"\(4, 4\)"),
        (HYBRID, (16, 24), r"\(1, 2\)"),
    ],
    ids=str,
)
def test_incomplete_patches_are_refused(options, size, multiple):
    with pytest.raises(ValueError, match=f"multiple of {multiple}"):
        free(**options)(images(1, *size, 3))


def test_incomplete_patches_are_refused_in_a_graph():
    with pytest.raises(ValueError, match=r"multiple of \(4, 4\)"):
        free().predict(images(1, 16, 30, 3), verbose=0)


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (lambda: free(position_embedding="rotary"), "`image_size` must be given for rotary"),
        (lambda: free(position_embedding="relative"), "`image_size` must be given for .* relative"),
        (lambda: free(axial=True, pooling="gap"), "`image_size` must be given for .* axial"),
        (lambda: masked_patch_predictor(free()), "`model` must be of one image size"),
        (
            lambda: keras_vit.AddPositionEmbedding((4, 4), 4)(np.ones((1, 16, 8))),
            "be called with images",
        ),
    ],
)
def test_what_needs_an_image_size_is_refused(fail, message):
    with pytest.raises(ValueError, match=message):
        fail()
