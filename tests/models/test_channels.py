"""Models for images with another number of channels, made from those of RGB images."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.configuration import IMAGENET
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec
from keras_vit.models.interpolation import adapt_kernel
from keras_vit.models.structure import first_convolution
from keras_vit.models.surgery import with_channels
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import small_classifier
from tests.fixtures.tiny import TINY, images

NORMALIZED = ImageSpec(mean=IMAGENET[0], deviation=IMAGENET[1])


def kernel_of(model):
    return to_numpy(first_convolution(model).kernel.value)


def rgb_model(image_spec=WHOLE_IMAGE, family="token", **options):
    model = small_classifier(family, **options)
    model.image_spec = image_spec
    return model


@pytest.mark.parametrize(
    ("channels", "expected"),
    [(1, [6]), (2, [1.5, 3]), (3, [1, 2, 3]), (4, [0.75, 1.5, 2.25, 0.75]), (6, [0.5, 1, 1.5] * 2)],
)
def test_kernels_are_added_or_repeated(channels, expected):
    kernel = np.arange(1, 4, dtype="float32").reshape(1, 1, 3, 1)
    np.testing.assert_array_equal(adapt_kernel(kernel, channels).ravel(), np.float32(expected))


@pytest.mark.parametrize("image_spec", [WHOLE_IMAGE, NORMALIZED], ids=["centered", "imagenet"])
@pytest.mark.parametrize(("family", "size"), [("token", (16, 24)), ("gap", None), ("dinov3", 16)])
def test_a_gray_image_has_the_logits_of_three_equal_channels(image_spec, family, size):
    model = rgb_model(image_spec, family, image_size=size)
    gray = images(2, *(size if isinstance(size, tuple) else (16, 16)), 1)
    found = to_numpy(with_channels(model, 1)(gray))
    np.testing.assert_allclose(found, to_numpy(model(gray.repeat(3, -1))), rtol=0, atol=1e-5)


@pytest.mark.parametrize("image_spec", [WHOLE_IMAGE, NORMALIZED], ids=["centered", "imagenet"])
@pytest.mark.parametrize("channels", [2, 4, 13])
def test_the_mean_image_has_the_same_logits(image_spec, channels):
    """The new images are normalized with the repeated mean and deviation, as in timm."""
    model = rgb_model(image_spec)
    new = with_channels(model, channels)
    assert new.image_spec.channels == channels
    old, found = (
        to_numpy(m(np.broadcast_to(2 * np.float32(m.image_spec.mean) - 1, (1, *m.input_shape[1:]))))
        for m in (model, new)
    )
    np.testing.assert_allclose(found, old, rtol=0, atol=1e-5)


def test_repeated_channels_have_the_same_logits():
    model, batch = rgb_model(NORMALIZED), images(2, 16, 24, 3)
    found = to_numpy(with_channels(model, 6)(np.tile(batch, 2)))
    np.testing.assert_allclose(found, to_numpy(model(batch)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["token", "hybrid", "bit"])
def test_the_stored_kernel_is_adapted_and_other_weights_are_kept(family):
    model = rgb_model(family=family)
    new = with_channels(model, 5)
    np.testing.assert_array_equal(kernel_of(new), adapt_kernel(kernel_of(model), 5))
    first = first_convolution(model).kernel.path
    for old, copied in zip(model.weights, new.weights, strict=True):
        if old.path != first:
            np.testing.assert_array_equal(to_numpy(copied.value), to_numpy(old.value))
    assert new.options == model.options.replace(image_channels=5)


@pytest.mark.parametrize(
    ("mean", "channels", "expected"),
    [((0.5,), 4, (0.5,)), ((0.1, 0.3, 0.5), 1, (0.3,)), ((0.1, 0.3, 0.5), 4, (0.1, 0.3, 0.5, 0.1))],
)
def test_the_mean_of_the_new_channels(mean, channels, expected):
    np.testing.assert_allclose(ImageSpec(mean=mean).with_channels(channels).mean, expected)


@pytest.mark.parametrize(
    ("old", "channels", "new"),
    [
        (((0, 1, 2), (4, 5, 6)), 1, ((1,), (5,))),
        (((0, 1, 2), (4, 5, 6)), 4, ((0, 1, 2, 0), (4, 5, 6, 4))),
        (((1,), (5,)), 3, ((1,), (5,))),
    ],
)
def test_the_range_of_the_new_channels(old, channels, new):
    spec = ImageSpec(channels=len(old[0]), value_range=old)
    assert spec.with_channels(channels).value_range == new


@pytest.mark.parametrize(
    "value_range",
    [(1, 1), (1e9, 1e9 + 1), (0, float("inf")), ((0, 1), (1, 2)), ((0, 0, 5), (1, 1, 4)), "other"],
)
def test_a_range_has_a_pair_of_numbers_or_one_per_channel(value_range):
    with pytest.raises(ValueError, match="low < high"):
        ImageSpec(value_range=value_range)


@pytest.mark.parametrize(
    "build",
    [
        lambda: keras_vit.vision_transformer(**TINY, image_channels=4),
        lambda: keras_vit.resnet((1,), 32, num_classes=3, image_size=16, image_channels=4),
    ],
    ids=["vision_transformer", "resnet"],
)
def test_builders_record_the_channels(build):
    assert build().image_spec == ImageSpec(channels=4)


CHANGES = {
    "resize": lambda model: keras_vit.resize(model, 32),
    "patch_size": lambda model: keras_vit.resize(model, patch_size=8),
    "replace_head": lambda model: keras_vit.replace_head(model, 5),
    "backbone": lambda model: keras_vit.backbone(model, kind="blocks"),
    "lora": lambda model: keras_vit.enable_lora(model, 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_models_made_from_others_keep_the_channels(change):
    model = with_channels(rgb_model(NORMALIZED, image_size=16), 4)
    new = change(model)
    assert (new.input_shape[-1], new.image_spec) == (4, model.image_spec)


def test_a_keras_file_keeps_the_channels(tmp_path):
    model = with_channels(rgb_model(NORMALIZED), 4)
    value_range = (0, 1, 2, 3), (4, 5, 6, 7)
    model.image_spec = dataclasses.replace(model.image_spec, value_range=value_range)
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").image_spec == model.image_spec


def test_features_of_other_channels():
    model = with_channels(rgb_model(), 13)
    assert keras_vit.features(model, images(2, 16, 24, 13)).shape == (2, 8)
