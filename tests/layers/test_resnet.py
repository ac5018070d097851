"""Standardised kernels against their formulas, and the starts of the units."""

import numpy as np
import pytest

from keras_vit.layers import BottleneckUnit, PreActivationBottleneckUnit, StandardizedConv2D
from tests.fixtures.contract import to_numpy

RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(3, 3, 4, 8), loc=0.05, scale=1e-3).astype("float32")
# In float64: by the deviation as in vit_jax, by the variance as in big_transfer.
CENTRED = KERNEL.astype("float64") - KERNEL.astype("float64").mean(axis=(0, 1, 2))
VARIANCE = (CENTRED**2).mean(axis=(0, 1, 2))
STANDARDISED = {
    ("deviation", 1e-5): CENTRED / (np.sqrt(VARIANCE) + 1e-5),
    ("variance", 1e-10): CENTRED / np.sqrt(VARIANCE + 1e-10),
    ("variance", 1e-6): CENTRED / np.sqrt(VARIANCE + 1e-6),
}


def kernel_seen(layer):
    """The kernel that a layer convolves with: its answer to one bright pixel of each channel."""
    images = np.zeros((4, 3, 3, 4), "float32")
    images[range(4), 1, 1, range(4)] = 1
    layer.build(images.shape)
    layer.kernel.assign(KERNEL)
    # The answer is the kernel upside down, at each pixel by the weight that looks at the centre.
    return to_numpy(layer(images)).transpose(1, 2, 0, 3)[::-1, ::-1]


@pytest.mark.parametrize(("epsilon_in", "epsilon"), STANDARDISED)
def test_standardised_kernel(epsilon_in, epsilon):
    layer = StandardizedConv2D(8, 3, epsilon=epsilon, epsilon_in=epsilon_in)
    expected = STANDARDISED[epsilon_in, epsilon]
    np.testing.assert_allclose(kernel_seen(layer), expected, rtol=0, atol=2e-5)


# Outputs have 8 and 11 bits; of kernels rounded to as many, the errors would be 0.16 and 0.02.
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("mixed_bfloat16", 2e-2), ("mixed_float16", 3e-3)]
)
def test_statistics_are_float32(policy, tolerance):
    layer = StandardizedConv2D(8, 3, epsilon=1e-10, epsilon_in="variance", dtype=policy)
    expected = STANDARDISED["variance", 1e-10]
    np.testing.assert_allclose(kernel_seen(layer), expected, rtol=0, atol=tolerance)


def test_a_kernel_stored_in_float16():
    """A variance of 1e-10 is zero there."""
    layer = StandardizedConv2D(8, 3, dtype="float16")
    layer.build((1, 3, 3, 4))
    layer.kernel.assign(np.ones((3, 3, 4, 8)))
    assert np.isfinite(to_numpy(layer(np.ones((1, 3, 3, 4), "float16")))).all()


@pytest.mark.parametrize("size", [(8, 8), (7, 10)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_padding_of_strides(size, symmetric):
    layer = StandardizedConv2D(8, 3, strides=2, symmetric_padding=symmetric)
    images = RNG.normal(size=(1, *size, 4)).astype("float32")
    strided = to_numpy(layer(images))
    layer.strides = (1, 1)
    # "Same" pads even sizes on the right alone: its first output looks from the first pixel on.
    first = [1 if not symmetric and pixels % 2 == 0 else 0 for pixels in size]
    whole = to_numpy(layer(images))[:, first[0] :: 2, first[1] :: 2]
    np.testing.assert_allclose(strided, whole, rtol=0, atol=1e-5)


def test_units_start_as_their_shortcuts():
    """vit_jax's last norm starts at zero, `models_resnet.py`; BiT's units do not."""
    maps = RNG.normal(size=(2, 4, 4, 128)).astype("float32")
    ours = to_numpy(BottleneckUnit(32)(maps))
    np.testing.assert_array_equal(ours, np.maximum(maps, 0))
    assert np.abs(to_numpy(PreActivationBottleneckUnit(32)(maps)) - maps).max() > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon_in": "std"},
        {"use_bias": True},
        {"padding": "valid"},
        {"data_format": "channels_first"},
        {"groups": 2},
    ],
    ids=str,
)
def test_what_a_standardized_convolution_cannot_do_is_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        StandardizedConv2D(8, 3, **options)
