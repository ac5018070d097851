"""Counts of activations, compared with those that PyTorch keeps for the backward pass."""

import keras
import pytest

from keras_vit.evaluation.costs import count_activations
from keras_vit.models.options import ResNetOptions, VitOptions
from keras_vit.models.vit import build_model

if keras.backend.backend() != "torch":
    pytest.skip("What is kept is told by PyTorch alone", allow_module_level=True)

import torch
from torch.nn import functional


def kept_of_an_image(function, *shape):
    """Count the floats that are kept per image; kernels do not grow with the batch."""
    two, four = (kept_numbers(function, torch.randn(count, *shape)) for count in (2, 4))
    return (four - two) / 2


def kept_numbers(function, images):
    kept = {}

    def keep(tensor):
        if tensor.dtype == torch.float32:
            # Kept alive, so that no other tensor gets its address.
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(images).sum()
    return sum(tensor.untyped_storage().nbytes() // 4 for tensor in kept.values())


@pytest.mark.parametrize(
    ("size", "options"),
    [
        *((size, {"pooling": kind}) for kind in ("token", "gap", "map") for size in (64, 224)),
        (160, {"position_embedding": "relative"}),
        (160, {"position_embedding": "relative", "pooling": "gap"}),
        (160, {"axial": True, "pooling": "gap"}),
        (160, {"position_placement": "every_layer"}),
        (160, {"position_placement": "every_layer_shared", "position_embedding": "learned2d"}),
    ],
    ids=str,
)
def test_activations_of_a_vit_are_what_pytorch_keeps(size, options):
    variant = VitOptions(16, 96, 2, 3, 384, image_size=size, **options)
    model = build_model(variant)
    kept = kept_of_an_image(lambda images: model(images, training=True), size, size, 3)
    # The rest is means and deviations of the norms and sums of the attention.
    assert count_activations(variant, size) == pytest.approx(kept, rel=0.03)


def convolve(x, filters, size, stride=1):
    kernel = torch.randn(filters, x.shape[1], size, size, requires_grad=True)
    return functional.conv2d(x, kernel, stride=stride, padding=size // 2)


def activate(x):
    return functional.relu(functional.group_norm(x, 32))


def bit_unit(x, filters, stride, is_first):
    given = activate(x)
    shortcut = convolve(given, 4 * filters, 1, stride) if is_first else x
    y = activate(convolve(given, filters, 1))
    y = activate(convolve(y, filters, 3, stride))
    return shortcut + convolve(y, 4 * filters, 1)


def hybrid_unit(x, filters, stride, is_first):
    shortcut = x
    if is_first:
        shortcut = functional.group_norm(convolve(x, 4 * filters, 1, stride), 32)
    y = activate(convolve(x, filters, 1))
    y = activate(convolve(y, filters, 3, stride))
    return functional.relu(shortcut + functional.group_norm(convolve(y, 4 * filters, 1), 32))


def resnet(images, root, unit, stages):
    maps = functional.max_pool2d(root(convolve(images, 32, 7, 2)), 3, 2, padding=1)
    for stage, units in enumerate(stages):
        for index in range(units):
            stride = 2 if index == 0 and stage > 0 else 1
            maps = unit(maps, 32 * 2**stage, stride, index == 0)
    return maps


def test_activations_of_a_resnet_are_what_pytorch_keeps():
    def model(images):
        maps = resnet(images, lambda maps: maps, bit_unit, stages=(2, 3))
        return activate(maps).mean((2, 3)) @ torch.randn(256, 5, requires_grad=True)

    kept = kept_of_an_image(model, 3, 64, 64)
    # The rest is means and deviations of the norms.
    counted = count_activations(ResNetOptions((2, 3), 32), 64)
    assert counted == pytest.approx(kept, rel=0.01)


def test_activations_of_a_hybrid_are_what_pytorch_keeps():
    """Only the part before the ViT, which has as many patches."""

    def model(images):
        return resnet(images, activate, hybrid_unit, stages=(2, 3))

    plain = VitOptions(8, 96, 2, 3, 384)
    hybrid = plain.replace(patch_size=1, resnet_stages=(2, 3), resnet_width=32)
    maps = count_activations(hybrid, 64) - count_activations(plain, 64)
    kept = kept_of_an_image(model, 3, 64, 64)
    assert maps + 3 * 64**2 == pytest.approx(kept, rel=0.01)


def test_remat_keeps_the_inputs_of_blocks():
    """One block at a time keeps everything."""
    rows = [VitOptions(16, 96, depth, 3, 384) for depth in (1, 2, 3)]
    whole = [count_activations(row, 64) for row in rows]
    remat = [count_activations(row, 64, remat=True) for row in rows]
    tokens = 64**2 // 16**2 + 1
    assert remat[0] - whole[0] == tokens * 96
    assert remat[2] - remat[1] == remat[1] - remat[0] == tokens * 96
    assert whole[2] - whole[1] > 10 * tokens * 96
