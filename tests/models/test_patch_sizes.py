"""Models for another patch size, as in FlexiViT."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.models.features import features
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import assert_intermediate, assert_logits, case_model, case_outputs
from tests.fixtures.tiny import TINY, images

CASE = "l1_flexivit_gap"
HYBRID = {**TINY, "image_size": 64, "patch_size": 1, "resnet_stages": (1,), "resnet_width": 32}


def reference_of(image_size, patch_size):
    prefix = f"image{image_size}_patch{patch_size}/"
    found = {n: array for n, array in case_outputs(CASE).items() if n.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("image_size", "patch_size"), [(32, 8), (32, 4), (48, 12)])
def test_one_set_of_weights_at_several_patch_sizes(image_size, patch_size):
    reference = reference_of(image_size, patch_size)
    sizes = {"image_size": image_size, "patch_size": patch_size}
    for model in (keras_vit.resize(case_model(CASE), **sizes), case_model(CASE, **sizes)):
        found = features(model, reference["images"], ["position_embedding", "encoder_norm"])
        assert_intermediate(to_numpy(found["position_embedding"]), reference["with_posemb"])
        assert_intermediate(to_numpy(found["encoder_norm"]), reference["encoded"])
        assert_logits(to_numpy(model(reference["images"])), reference["logits"])
        assert model.options.patch_size == (patch_size, patch_size)


@pytest.mark.parametrize("patch_size", [(8, 8), (6, 12), (4, 8)])
def test_larger_patches_that_are_resized_give_the_same_tokens(patch_size):
    model = keras_vit.resize(vision_transformer(**TINY), patch_size=4)
    pixels = images(2, 4, 4, 3)
    kernel = to_numpy(model.get_layer("patch_embedding").projection.kernel.value)
    larger = to_numpy(keras.ops.image.resize(pixels, patch_size, data_format="channels_last"))
    np.testing.assert_allclose(
        np.einsum("brci,rcif->bf", larger, keras_vit.resize_patch_kernel(kernel, patch_size)),
        np.einsum("brci,rcif->bf", pixels, kernel),
        rtol=0,
        atol=1e-5,
    )


def test_the_mean_of_images_stays_what_it_is():
    """A kernel that absorbed a normalization sees the mean as zero, though its sum may change."""
    model = case_model("hf_vit_imagenet_mean_std")
    mean = 2 * np.array(model.image_spec.mean, "float32") - 1
    grey = np.broadcast_to(mean, (1, *model.input_shape[1:]))
    (size, _) = model.options.patch_size
    tokens = [
        to_numpy(changed.get_layer("patch_embedding")(grey))[0, 0]
        for changed in (model, keras_vit.resize(model, patch_size=size // 4))
    ]
    np.testing.assert_allclose(tokens[1], tokens[0], rtol=0, atol=1e-5)


def test_a_hybrid_has_other_patches():
    model = keras_vit.resize(vision_transformer(**HYBRID), patch_size=2)
    assert model.options.patch_size == (2, 2)
    assert tuple(model(images(1, *model.input_shape[1:])).shape) == (1, 3)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="`method` must be"):
        keras_vit.resize_patch_kernel(np.zeros((4, 4, 3, 5)), 2, method="linear")
