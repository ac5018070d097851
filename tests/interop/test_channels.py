"""Channels of timm's models that are adapted from RGB weights."""

import numpy as np
import pytest
import torch

import keras_vit
from keras_vit.models.interpolation import adapt_kernel
from keras_vit.models.structure import first_convolution
from tests.fixtures.contract import to_numpy
from tests.fixtures.peers.torch_models import check, randomise, torch_images
from tests.interop.test_timm_towers import SMALL, save

SHAPES = [(16, 16, 3, 192), (14, 14, 3, 33), (7, 7, 3, 64)]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7, 13, 100])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_are_adapted_bit_for_bit(timm, shape, channels):
    kernel = np.random.default_rng(0).normal(size=shape).astype("float32")
    weight = torch.tensor(kernel.transpose(3, 2, 0, 1).copy())
    theirs = timm.models.adapt_input_conv(channels, weight).numpy()
    np.testing.assert_array_equal(adapt_kernel(kernel, channels), theirs.transpose(2, 3, 1, 0))


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        *(("vit_base_patch16_224", channels) for channels in (1, 2, 4, 13)),
        # OpenAI's mean and deviation. timm has none for one channel.
        *(("vit_base_patch16_clip_224", channels) for channels in (2, 4, 13)),
    ],
)
def test_a_model_equals_the_one_that_timm_adapts(timm, name, channels, tmp_path):
    """The new channels are normalized with the repeated mean and deviation of RGB."""
    changes = {"num_classes": 5}
    model = randomise(timm.create_model(name, **SMALL, **changes))
    save(timm, model, changes, tmp_path)
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, in_chans=channels).eval()
    ours = keras_vit.from_checkpoint(tmp_path, image_channels=channels)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, channels)).astype("float32")
    mean, deviation = (np.resize(theirs.pretrained_cfg[name], channels) for name in ("mean", "std"))
    normalized = (((images + 1) / 2 - mean) / deviation).astype("float32")
    with torch.no_grad():
        check(ours, theirs(torch_images(normalized)).numpy(), images)
    kernel = theirs.patch_embed.proj.weight.detach().numpy().transpose(2, 3, 1, 0)
    if set(theirs.pretrained_cfg["mean"]) == {0.5}:
        np.testing.assert_array_equal(to_numpy(first_convolution(ours).kernel.value), kernel)
