"""Backbones: maps at several strides of models of every kind."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.core.image_spec import ImageSpec
from tests.fixtures.tiny import TINY, images

# Patches of 4 pixels are the level P2.
SIZES = {"P2": 8, "P3": 4, "P4": 2, "P5": 1}
KINDS = ("simple", "dpt", "blocks")
OPTIONS = [
    {"num_registers": 3, "pooling": "map", "class_token": True},
    {"distillation_token": True},
    {"fc_norm": True, "pooling": "gap"},
    {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 1},
    {"axial": True, "pooling": "gap"},
]


def vit(**options):
    return keras_vit.vision_transformer(**{**TINY, "image_size": 32, **options})


@pytest.mark.parametrize(
    ("options", "kind"),
    [*(({}, kind) for kind in KINDS), *((options, "dpt") for options in OPTIONS)],
    ids=str,
)
def test_maps_have_the_sizes_of_their_levels(options, kind):
    maps = keras_vit.backbone(vit(**options), kind=kind, channels=6)
    found = maps(images(2, 32, 32, 3))
    expected = {name: (2, side, side, 6) for name, side in SIZES.items()}
    if kind == "blocks":
        expected = dict.fromkeys(("block_0", "block_1"), (2, 8, 8, 8))
    assert {name: tuple(x.shape) for name, x in found.items()} == expected
    assert {name: (2, *x.shape[1:]) for name, x in maps.output.items()} == expected


def test_patches_are_in_their_places():
    model = vit(depth=1)
    maps = keras_vit.backbone(model, ("encoder_norm",), "blocks")(images(1, 32, 32, 3))
    expected = keras_vit.features(model, images(1, 32, 32, 3), ["encoder_norm"], as_maps=True)
    np.testing.assert_allclose(
        ops.convert_to_numpy(maps["encoder_norm"]), expected["encoder_norm"], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_size(kind, tmp_path):
    maps = keras_vit.backbone(keras_vit.resize(vit()), kind=kind, channels=6)
    fixed = keras_vit.backbone(vit(), kind=kind, channels=6)
    fixed.set_weights(maps.get_weights())
    pictures = images(2, 32, 32, 3)
    maps.save(tmp_path / "maps.keras")
    again = keras.models.load_model(tmp_path / "maps.keras")(pictures)
    for name, expected in fixed(pictures).items():
        actual = ops.convert_to_numpy(maps(pictures)[name])
        np.testing.assert_allclose(actual, ops.convert_to_numpy(expected), atol=1e-5)
        np.testing.assert_array_equal(ops.convert_to_numpy(again[name]), actual)
    wide = maps(images(1, 32, 64, 3))
    assert tuple(next(iter(wide.values())).shape[1:3]) == (8, 16)


def test_variables_are_copies_and_frozen_parts_stay_frozen():
    model = vit()
    keras_vit.freeze_blocks(model, 1)
    maps = keras_vit.backbone(model, levels=("P3",), channels=6)
    own = {variable.path for variable in maps.trainable_variables}
    assert not any("block_0" in path or "patch_embedding" in path for path in own)
    assert any("block_1" in path for path in own)
    assert any("P3_output" in path for path in own)
    before = model.get_weights()
    for variable in maps.variables:
        variable.assign(ops.zeros(variable.shape))
    for old, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)


def test_it_has_the_image_spec_of_the_model():
    model = vit()
    model.image_spec = ImageSpec(mean=(0.4,), deviation=(0.3,))
    assert keras_vit.backbone(model, levels=("P2",)).image_spec == model.image_spec


@pytest.mark.parametrize(
    ("model_options", "options", "message"),
    [
        ({}, {"levels": ("P1",)}, "`levels` must be among P2, P3, P4, P5"),
        ({}, {"levels": ("block_7",), "kind": "blocks"}, "`levels` must be one of"),
        # Without the class token, which is taken off.
        ({}, {"levels": ("patch_embedding",), "kind": "blocks"}, "`levels` must be one of"),
        ({"image_size": 16}, {}, "`levels` must not have larger strides than the image"),
    ],
)
def test_wrong_levels_are_refused(model_options, options, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.backbone(vit(**model_options), **options)
