"""The builder of ResNets, and hybrids."""

import numpy as np
import pytest

import keras_vit
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.features import features
from keras_vit.models.resnet import resnet
from tests.fixtures.contract import check_model, to_numpy
from tests.fixtures.tiny import TINY, images
from tests.models.test_surgery import check_backbone

BIT = {"stages": (2, 1), "width": 32, "num_classes": 3, "image_size": 16}
STAGES = {"resnet_stages": (2, 1), "resnet_width": 32}
HYBRID = {**TINY, **STAGES, "patch_size": 1, "image_size": (16, 24)}
UNITS = "root_pool stage_1_unit_1 stage_1_unit_2 stage_2_unit_1"


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"dtype": "mixed_float16"}, marks=pytest.mark.large),
        {"preactivation": False, "dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_resnet_keeps_the_contract(options, tmp_path):
    check_model(resnet(**{**BIT, **options}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"resnet_stages": (), "patch_size": 2, "dtype": "mixed_float16"}], ids=str
)
def test_hybrid_keeps_the_contract(options, tmp_path):
    check_model(vision_transformer(**{**HYBRID, **options}), tmp_path)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, f"root_zeros {UNITS} norm relu pooling head"),
        ({"preactivation": False, "num_classes": 0}, f"root_norm root_relu {UNITS} pooling"),
    ],
)
def test_stable_names(options, names):
    layers = resnet(**{**BIT, **options}).layers
    assert [layer.name for layer in layers] == ["images", "root_conv", *names.split()]


@pytest.mark.parametrize("size", [16, 17, (33, 50), 1])
def test_any_image_size(size):
    model = resnet(**{**BIT, "image_size": size})
    assert tuple(model(images(2, *model.input_shape[1:])).shape) == (2, 3)


def test_the_head_starts_at_zero():
    assert not any(weights.any() for weights in resnet(**BIT).get_layer("head").get_weights())


@pytest.mark.slow
def test_replace_head_and_resize_of_a_resnet():
    model = resnet(**BIT)
    new = resize(replace_head(model, 5), (20, 30))
    assert (new.input_shape, new.output_shape) == ((None, 20, 30, 3), (None, 5))
    check_backbone(model, new)
    headless = replace_head(model, 0)
    batch = images(2, 16, 16, 3)
    np.testing.assert_array_equal(features(model, batch), headless.predict(batch, verbose=0))


def test_resize_of_a_hybrid():
    model = vision_transformer(**HYBRID)
    new = resize(model, (32, 40))
    assert new.input_shape == (None, 32, 40, 3)
    old, table = (to_numpy(m.get_layer("position_embedding").embedding.value) for m in (model, new))
    expected = keras_vit.resize_position_embedding(old, (4, 5), source_grid=(2, 3))
    np.testing.assert_array_equal(table, expected)
    check_backbone(model, new, leave_out=("position_embedding/",))


@pytest.mark.slow
def test_feature_maps():
    model = vision_transformer(**HYBRID)
    layers = ["stage_1_unit_2", "stage_2_unit_1", "block_1"]
    maps = features(model, images(2, 16, 24, 3), layers, as_maps=True)
    assert [maps[name].shape for name in layers] == [(2, 4, 6, 128), (2, 2, 3, 256), (2, 2, 3, 8)]


@pytest.mark.parametrize("options", [{"image_size": 20}, {"patch_size": 4}], ids=str)
def test_incomplete_patches_of_a_hybrid_are_refused(options):
    with pytest.raises(ValueError, match="`image_size` must be a multiple"):
        vision_transformer(**{**HYBRID, **options})
