"""Projections: the products that torch computes by operations of oneDNN."""

import keras
import numpy as np
import pytest

from keras_vit.layers import projection
from keras_vit.layers.mlp import as_activation
from tests.fixtures.tiny import images

TORCH = pytest.mark.backends("torch", reason="the others multiply matrices")


@TORCH
@pytest.mark.parametrize("has_bias", [True, False])
def test_convolutions_are_products(has_bias, monkeypatch):
    import torch

    shapes = (projection.MANY_ROWS, 24), (24, 40), (40,)
    tensors = [torch.tensor(images(*shape), requires_grad=True) for shape in shapes]
    rows, kernel, bias = (*tensors[:2], tensors[2] if has_bias else None)
    upstream = torch.tensor(images(projection.MANY_ROWS, 40))

    def results(is_convolved):
        monkeypatch.setattr(projection, "is_convolved", lambda tokens: is_convolved)
        outputs = projection.affine(rows, kernel, bias)
        inputs = [tensor for tensor in (rows, kernel, bias) if tensor is not None]
        gradients = torch.autograd.grad(outputs, inputs, upstream)
        return [tensor.detach().numpy() for tensor in (outputs, *gradients)]

    for new, expected in zip(results(True), results(False), strict=True):
        np.testing.assert_allclose(new, expected, rtol=0, atol=1e-5)


@TORCH
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 2**-7)])
@pytest.mark.parametrize("activation", [None, "gelu_tanh", "gelu", "quick_gelu"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_products_without_gradients(activation, use_bias, dtype, tolerance, monkeypatch):
    import torch

    monkeypatch.setattr(projection, "_has_slow_mkl", lambda: True)
    activation = as_activation(activation)
    layer = projection.Dense(24, activation, use_bias, bias_initializer="uniform", dtype=dtype)
    tokens = torch.tensor(images(2, projection.MANY_ROWS, 40)).to(getattr(torch, dtype))
    trained = layer(tokens).detach()
    with torch.no_grad(), torch.profiler.profile() as profile:
        outputs = layer(tokens)
    operations = {event.key for event in profile.key_averages()}
    if dtype == "float32" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert "aten::gelu" not in operations
    assert outputs.dtype == tokens.dtype
    exact = keras.layers.Dense.call(layer, tokens.float()).detach()
    np.testing.assert_allclose(trained.float(), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(outputs.float(), exact, rtol=tolerance, atol=tolerance)


@TORCH
def test_which_products_are_convolutions(monkeypatch):
    import torch

    tokens = torch.zeros(2, projection.MANY_ROWS // 2, 8)
    for has_slow_mkl in (True, False):
        monkeypatch.setattr(projection, "_has_slow_mkl", lambda answer=has_slow_mkl: answer)
        assert projection.is_convolved(tokens) == has_slow_mkl
    monkeypatch.setattr(projection, "_has_slow_mkl", lambda: True)
    assert not projection.is_convolved(tokens[:1])
    assert not projection.is_convolved(tokens.bfloat16())
    assert not projection.is_convolved(tokens.to("meta"))


@TORCH
def test_exported_graphs_have_products(monkeypatch):
    import torch

    class Product(torch.nn.Module):
        def forward(self, rows):
            return projection.affine(rows, rows.T, None)

    monkeypatch.setattr(projection, "_has_slow_mkl", lambda: True)
    program = torch.export.export(Product(), (torch.zeros(projection.MANY_ROWS, 8),))
    targets = {str(node.target) for node in program.graph.nodes}
    assert "aten.mm.default" in targets
    assert not any("conv" in target for target in targets)
