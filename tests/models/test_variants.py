"""The table of variants against the published models."""

import inspect
import json

import keras
import pytest

import keras_vit
from keras_vit import builders
from keras_vit.evaluation.costs import count_parameters
from keras_vit.models import VARIANTS, find_variant
from keras_vit.models.options import is_resnet
from tests.fixtures.reference import DATA
from tests.models.test_options import OPTIONS

pytestmark = pytest.mark.backends("tensorflow", reason="counts are the same on every backend")

# Totals of the original models, variant by variant: of `jax.eval_shape`, or of transformers' models
# on the device `meta`, without their token of masked patches.
COUNTS = json.loads((DATA / "parameter_counts.json").read_text())
NAMES = [variant.name for variant in VARIANTS]


def size_of(row):
    """The size of the images; the original cuts off incomplete patches (384 = 27 * 14 + 6)."""
    variant, image_size = find_variant(row["variant"]), row["image_size"]
    if is_resnet(variant):
        return image_size
    return image_size // variant.stride[0] * variant.stride[0]


def count_of(row):
    """Our parameters for a row of the manifests, without allocating them."""
    pooling = "token" if row["pooling"] == "tok" else row["pooling"]
    variant, options = find_variant(row["variant"]), {}
    if is_resnet(variant):
        return built_count(variant.name, row)
    options = {"pooling": pooling, "representation_size": row["representation_size"]}
    options |= row.get("options", {})
    # Each block has the same number of parameters.
    one, two = (built_count(f"{variant.name}(depth={n})", row, **options) for n in (1, 2))
    return one + (variant.depth - 1) * (two - one)


def built_count(name, row, **options):
    with keras.StatelessScope(initialize_variables=False):
        model = builders.build(
            name, num_classes=row["num_classes"], image_size=size_of(row), **options
        )
        count = model.count_params()
    # Keras would allocate the variables at the end of its next scope.
    keras.utils.clear_session(free_memory=False)
    return count


def _mark(row):
    # Each variant is built once; what else its rows differ in is built of the smallest.
    if row["variant"] in ("ViT_Ti16", "R_Ti16", "BiT_R50x1"):
        return ()
    is_first = row == next(other for other in COUNTS if other["variant"] == row["variant"])
    return pytest.mark.slow if is_first else pytest.mark.large


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=_mark(row), id=f"{row['variant']}: {row['source']}")
        for row in COUNTS
    ],
)
def test_parameter_count(row):
    expected = row["total_params"]
    if row["pooling"] == "tok":
        # big_vision gives the class token no position; its own is added to it (NUMERICS 1.2).
        expected += find_variant(row["variant"]).embedding_dim
    assert count_of(row) == expected


def test_every_variant_has_published_counts():
    # Two hybrids of the paper were never published.
    assert {row["variant"] for row in COUNTS} | {"R50_B32", "R50_L16"} == set(NAMES)


LINEAR = [
    row
    for row in COUNTS
    if row["pooling"] in ("token", "gap", "map")
    and not (row["representation_size"] or row.get("options"))
]


@pytest.mark.parametrize("row", LINEAR, ids=lambda row: f"{row['variant']}: {row['source']}")
def test_counted_from_the_table_alone(row):
    variant = find_variant(row["variant"])
    if not is_resnet(variant):
        variant = variant.replace(pooling=row["pooling"])
    assert count_parameters(variant, row["num_classes"], size_of(row)) == row["total_params"]


@pytest.mark.parametrize("name", NAMES)
def test_builder_belongs_to_its_row(name):
    builder = getattr(keras_vit, name)
    assert builder is getattr(builders, name)
    assert builder.__name__ == name
    parameters = inspect.signature(builder).parameters
    row = find_variant(name)
    assert set(parameters) == {*vars(row), "weights"} - set(row.sizes)
    assert list(parameters)[:3] == ["num_classes", "image_size", "weights"]
    assert parameters["name"].default == name


def test_builder_takes_every_option():
    sizes = find_variant("ViT_Ti16").sizes
    options = {name: OPTIONS[name] for name in set(OPTIONS) - set(sizes)}
    options["image_size"] = (32, 48)
    model = keras_vit.ViT_Ti16(**options, name="mine", dtype="mixed_bfloat16")
    assert options.items() <= vars(model.options).items()
    assert model.name == "mine"
    assert model.get_layer("block_11").compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("name", "option"),
    [("BiT_R50x1", {"width": 32}), ("R_Ti16", {"patch_size": 4}), ("ViT_B16", {"depth": 3})],
)
def test_an_architecture_is_not_an_option(name, option):
    with pytest.raises(TypeError, match=f"`{name}` has no argument of this name"):
        getattr(keras_vit, name)(**option)


def test_other_sizes_in_parentheses():
    """As a builder is called in Python; the model is what `vision_transformer` builds of them."""
    text = "ViT_Ti16( patch_size=4, embedding_dim=12, depth=2, mlp_dim=24)"
    variant = find_variant(text)
    assert variant.name == "ViT_Ti16(depth=2, embedding_dim=12, mlp_dim=24, patch_size=4)"
    assert find_variant(variant.name) == variant
    model = builders.build(text, num_classes=2, image_size=8)
    sizes = {"patch_size": 4, "embedding_dim": 12, "depth": 2, "num_heads": 3, "mlp_dim": 24}
    direct = keras_vit.vision_transformer(**sizes, num_classes=2, image_size=8)
    assert [w.shape for w in model.weights] == [w.shape for w in direct.weights]
    assert model.name == "ViT_Ti16"
    small = builders.build("BiT_R50x1(stages=(1,), width=32)", num_classes=2, image_size=32)
    assert small.get_layer("root_conv").filters == 32


@pytest.mark.parametrize("text", ["ViT_B17", "ViT_Ti16(4)", "ViT_Ti16(depth=2).name"])
def test_unknown_variants_are_refused(text):
    for find in (find_variant, builders.build):
        with pytest.raises(ValueError, match="variant="):
            find(text)
