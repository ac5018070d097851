"""Checkpoints of RGB models that are read for images with another number of channels."""

import dataclasses
import logging

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.configuration import IMAGENET
from keras_vit.core.image_spec import ImageSpec
from keras_vit.models.interpolation import adapt_kernel
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import small_classifier
from tests.fixtures.reference import REFERENCE
from tests.fixtures.tiny import images

NORMALIZED = ImageSpec("bicubic", True, 0.8, True, True, (0, 0), *IMAGENET)
FILES = {
    "google": ("a_vit_token.ckpt.npz", "patch_embedding/projection/kernel"),
    "hybrid": ("e2_hybrid_r50_half.ckpt.npz", "root_conv/kernel"),
    "bit": ("k1_bit_resnetv2.ckpt.npz", "root_conv/kernel"),
    "normalized": ("hf_vit_imagenet_mean_std", "patch_embedding/projection/kernel"),
}


def values_of(model):
    return {weight.path: to_numpy(weight.value) for weight in model.weights}


@pytest.mark.parametrize("channels", [1, 13])
@pytest.mark.parametrize(("file", "path"), FILES.values(), ids=FILES)
def test_the_first_kernel_is_adapted(file, path, channels):
    old = values_of(keras_vit.from_checkpoint(REFERENCE / file))
    model = keras_vit.from_checkpoint(REFERENCE / file, image_channels=channels)
    np.testing.assert_array_equal(values_of(model)[path], adapt_kernel(old[path], channels))
    assert model.options.image_channels == model.image_spec.channels == channels


def test_the_adaptation_is_logged(caplog):
    with caplog.at_level(logging.INFO, "keras_vit"):
        keras_vit.from_checkpoint(REFERENCE / "a_vit_token.ckpt.npz", image_channels=4)
    assert "adapted from images with 3 channels to 4 channels" in caplog.text


@pytest.mark.parametrize(("channels", "expected"), [(None, 4), (4, 4), (1, 1)])
def test_channels_of_a_file_with_four(channels, expected, tmp_path):
    keras_vit.save_checkpoint(small_classifier("token", image_channels=4), tmp_path / "4.npz")
    model = keras_vit.from_checkpoint(tmp_path / "4.npz", image_channels=channels)
    assert model.input_shape[-1] == model.image_spec.channels == expected


@pytest.mark.slow
def test_a_builder_adapts_its_weights(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=2, image_size=16)
    keras_vit.save_checkpoint(model, tmp_path / "tiny.npz")
    built = keras_vit.ViT_Ti16(weights=tmp_path / "tiny.npz", image_size=32, image_channels=1)
    assert built.input_shape == (None, 32, 32, 1)


@pytest.mark.parametrize("layout", ["timm", "huggingface"])
@pytest.mark.parametrize("channels", [1, 4, 13])
def test_other_projects_files_hold_the_channels(layout, channels, tmp_path):
    model = small_classifier("erf", image_channels=channels, pooling="token", image_size=16)
    spec = dataclasses.replace(NORMALIZED, channels=3).with_channels(channels)
    model.image_spec = dataclasses.replace(spec, rounds_offset=layout == "timm")
    keras_vit.save_checkpoint(model, tmp_path / "model", layout)
    read = keras_vit.from_checkpoint(tmp_path / "model")
    assert read.image_spec == model.image_spec
    batch = images(2, 16, 16, channels)
    np.testing.assert_allclose(to_numpy(read(batch)), to_numpy(model(batch)), rtol=0, atol=1e-5)
