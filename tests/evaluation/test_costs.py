"""Operations and parameters, compared with TensorFlow's profiler, XLA and the published ones."""

import dataclasses

import pytest

import keras_vit
from keras_vit.evaluation.costs import count_flops, count_parameters, products_of
from keras_vit.models import find_variant
from keras_vit.models.options import POOLINGS
from keras_vit.models.vit import build_model

# Names of products in the profile.
PRODUCTS = ("Conv2D", "MatMul", "BatchMatMulV2")
SHALLOW = dataclasses.replace(find_variant("ViT_Ti16"), depth=2)
ABLATIONS = (
    {"position_embedding": "relative"},
    {"position_embedding": "relative", "pooling": "gap"},
    {"axial": True, "pooling": "gap"},
    {"axial": True, "pooling": "map", "position_embedding": "sincos2d"},
    {"position_placement": "every_layer"},
    {"position_placement": "every_layer_shared", "position_embedding": "learned2d"},
    {"position_placement": "every_layer", "position_embedding": "learned2d"},
)
LARGE = ("ViT_B16", "ViT_L16", "ViT_H14", "R50_B16", "BiT_R50x1")


def profiled_operations(model):
    """Count the products in a forward pass of one image, by TensorFlow's profiler.

    The sums of a GroupNorm, which are products of matrices on TensorFlow, are left out: sums are
    not counted either.
    """
    import tensorflow as tf

    shape = (1, *model.input_shape[1:])
    graph = tf.function(model).get_concrete_function(tf.TensorSpec(shape)).graph
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    with graph.as_default():
        profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    found = {node.name: node.float_ops for node in nodes_of(profile)}
    return sum(
        found.get(operation.name, 0)
        for operation in graph.get_operations()
        if operation.type in PRODUCTS and "norm" not in operation.name
    )


def nodes_of(node):
    """Yield the nodes of a profile by scope."""
    yield node
    for child in node.children:
        yield from nodes_of(child)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="TensorFlow's profiler")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            ("ViT_Ti16", {"num_classes": 5, "image_size": 32, "pooling": p})
            for p in ("gap", "map", "token_gap")
        ),
        *(("ViT_Ti16", {"image_size": 64, **options}) for options in ABLATIONS),
        ("R_Ti16", {"image_size": (64, 96)}),
        ("R_Ti16", {"image_size": 64, "image_channels": 4}),
        ("ViT_Ti16", {"image_size": 32, "image_channels": 13}),
        *((name, {}) for name in ("ViT_Ti16", "R_Ti16")),
        *(pytest.param(name, {}, marks=pytest.mark.large) for name in LARGE),
    ],
)
def test_operations_are_the_profilers(name, options):
    model = getattr(keras_vit, name)(**options)
    size = model.input_shape[1:3]
    assert profiled_operations(model) == count_flops(model.options, model.output_shape[1], size)


@pytest.mark.parametrize(
    ("name", "gigaflops"),
    # Multiply-adds as published for DeiT (arXiv 2012.12877: Ti 1.3, S 4.6, B 17.6) and
    # timm (L/16 61.6, B/32 4.4); additions are counted in `count_flops`.
    [("ViT_Ti16", 1.3), ("ViT_S16", 4.6), ("ViT_B16", 17.6), ("ViT_L16", 61.6), ("ViT_B32", 4.4)],
)
def test_operations_are_the_published_ones(name, gigaflops):
    assert count_flops(find_variant(name)) / 2e9 == pytest.approx(gigaflops, abs=0.06)


@pytest.mark.backends("jax", reason="XLA's count")
@pytest.mark.parametrize(("size", "stride", "side"), [(3, 1, 7), (3, 2, 8), (7, 2, 28), (1, 2, 8)])
@pytest.mark.parametrize("padding", ["same", "symmetric"])
def test_products_with_zeros_are_counted_as_by_xla(size, stride, side, padding):
    import jax

    half = (size - 1) // 2
    around = "SAME" if padding == "same" else [(half, half)] * 2

    def convolve(images, kernel):
        return jax.lax.conv_general_dilated(images, kernel, (stride, stride), around)

    shapes = (1, 5, side, side), (4, 5, size, size)
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    counted = jax.jit(convolve).lower(*arguments).cost_analysis()["flops"]
    assert counted == 2 * 4 * 5 * products_of(size, side, -(-side // stride), stride) ** 2


@pytest.mark.parametrize(
    "options",
    [
        *ABLATIONS,
        *({"pooling": kind} for kind in POOLINGS),
        *({"position_embedding": kind} for kind in ("none", "rotary", "sincos2d")),
    ],
    ids=str,
)
def test_parameters_are_the_models(options):
    options = SHALLOW.replace(num_classes=10, image_size=64, **options)
    assert count_parameters(options, 10, 64) == build_model(options).count_params()
