"""Reported accuracies, compared only with the models and datasets that they are for."""

import types

import pytest

from keras_vit.checkpoints import find_checkpoint
from keras_vit.experiments.reported import (
    OF_CHECKPOINTS,
    TABLE_2,
    builder_of,
    check_row_fits,
    find_reported,
    reported_of_checkpoint,
)
from keras_vit.models import find_variant

TINY = "ViT_Ti16/augreg_imagenet2012_384"


def model_of(variant, num_classes=1000, image_size=384, **options):
    """Stand in for a model: no weights are compared."""
    return types.SimpleNamespace(
        options=find_variant(variant).replace(**options),
        input_shape=(None, image_size, image_size, 3),
        output_shape=(None, num_classes),
    )


def test_a_checkpoint_is_found_by_its_name_and_address():
    row, tiny = find_checkpoint(TINY), model_of("ViT_Ti16")
    for source in (TINY, row.url):
        found = reported_of_checkpoint(source, tiny, "imagenet2012")
        assert (found.name, found.accuracy, found.image_size) == (TINY, 78.22, 384)
        for data in ("imagenet2012_real", "cifar10", "folder:imagenet2012", "tfds:imagenet2012"):
            assert reported_of_checkpoint(source, tiny, data) is None
    for other in ("tiny.npz", ".", row.url.replace("lr_0.03", "lr_0.01")):
        assert reported_of_checkpoint(other, tiny, "imagenet2012") is None


@pytest.mark.parametrize("options", [{"num_classes": 10}, {"image_size": 224}, {"qk_norm": True}])
def test_a_model_that_only_has_the_name_of_a_checkpoint_has_no_accuracy(options):
    assert reported_of_checkpoint(TINY, model_of("ViT_Ti16", **options), "imagenet2012") is None


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("ViT_H14/jft300m/cifar10", "cifar10", "a row with the architecture ViT_L16"),
        ("ViT_L16/jft300m/cifar100", "cifar10", "a row with the dataset cifar10"),
        ("ViT_L16/jft300m/cifar100", "folder:cifar", "the number of classes 10.*classes 100"),
        ("ViT_L16/jft300m/vtab", "vtab/svhn", "a row with the dataset vtab/svhn"),
        ("ViT_L16/jft300m/vtab", "folder:vtab", "the number of classes 10.*classes None"),
    ],
)
def test_a_row_of_something_else_is_refused(name, data, message):
    large = model_of("ViT_L16")
    check_row_fits(find_reported("ViT_L16/jft300m/cifar10"), large, "cifar10", 10)
    check_row_fits(find_reported("ViT_L16/jft300m/cifar10"), large, "folder:cifar", 10)
    with pytest.raises(ValueError, match=message):
        check_row_fits(find_reported(name), large, data, 10)


@pytest.mark.parametrize(
    ("options", "builder"),
    [
        (
            {"pooling": "map", "num_registers": 4, "qk_norm": True},
            "ViT_Ti16(num_registers=4, pooling='map', qk_norm=True)",
        ),
        ({"pooling": "gap", "class_token": True}, "ViT_Ti16(class_token=True, pooling='gap')"),
        ({"dropout": 0.1, "activation": "gelu"}, "ViT_Ti16"),
    ],
)
def test_options_that_change_the_outputs_make_another_builder(options, builder):
    assert builder_of(model_of("ViT_Ti16", **options)) == builder


def test_the_plain_baselines_have_the_options_of_their_accuracies():
    """As in arXiv 2205.01580."""
    options = {"pooling": "gap", "position_embedding": "sincos2d", "representation_size": 384}
    model = model_of("ViT_S16", image_size=224, **options)
    found = reported_of_checkpoint("ViT_S16/imagenet2012_90ep", model, "imagenet2012")
    assert found.builder == builder_of(model)


def test_names_of_reported_accuracies_are_unique():
    assert len(TABLE_2) == 7 * 4
    assert len({row.name for row in TABLE_2 + OF_CHECKPOINTS}) == len(TABLE_2 + OF_CHECKPOINTS)


def test_a_comparison_names_another_resolution_and_crop():
    row = find_reported("ViT_L16/jft300m/imagenet2012")
    assert row.compare(0.9, (512, 512)).startswith("accuracy 90.00 %, reported 87.76 +- 0.03 % (")
    assert row.compare(0.9, (512, 512)).endswith("difference +2.24")
    assert row.compare(0.9, (224, 224), 256).endswith(
        "difference +2.24; measured on images of 224x224 pixels instead of 512x512; "
        "measured on central crops from 256 pixels"
    )
