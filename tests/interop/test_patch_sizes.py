"""Kernels and position embeddings of another patch size, as timm changes them."""

import numpy as np
import pytest
import torch

import keras_vit

SIZES = [(8, 8), (32, 32), (14, 14), (12, 24), (7, 30)]


@pytest.mark.parametrize("patch_size", SIZES, ids=str)
@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_kernels(timm, method, patch_size):
    # As large as trained kernels are: timm's pseudo-inverse is in float32.
    kernel = 0.1 * np.random.default_rng(0).normal(size=(16, 16, 3, 5)).astype("float32")
    expected = timm.layers.resample_patch_embed(
        torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()),
        patch_size,
        interpolation=method,
        antialias=method == "bicubic",
    )
    ours = keras_vit.resize_patch_kernel(kernel, patch_size, method)
    np.testing.assert_allclose(ours, expected.permute(2, 3, 1, 0).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("grid", [(4, 4), (12, 5), (16, 16)], ids=str)
def test_positions(timm, grid):
    table = np.random.default_rng(0).normal(size=(1, 1 + 9 * 9, 6)).astype("float32")
    expected = timm.layers.resample_abs_pos_embed(
        torch.from_numpy(table), grid, interpolation="bilinear", antialias=True
    )
    ours = keras_vit.resize_position_embedding(table, grid, method="linear")
    np.testing.assert_allclose(ours, expected.numpy(), rtol=0, atol=1e-5)
