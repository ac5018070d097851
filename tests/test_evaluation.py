"""Accuracy, and costs from the table."""

import keras
import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.evaluation.classification import evaluate
from keras_vit.evaluation.compute import count_flops
from keras_vit.evaluation.studies import SCALING_STUDY
from keras_vit.models import find_variant, vision_transformer
from tests.contract import to_numpy
from tests.models.test_vit import TINY, images

SIZE = (8, 8)


def classifier(num_classes):
    model = vision_transformer(**{**TINY, "image_size": 8, "num_classes": num_classes})
    model.get_layer("head").kernel.assign(images(8, num_classes))
    return model


@pytest.mark.parametrize("classes", [None, ("0", "1", "2")])
def test_accuracy_is_numpys(classes):
    # 50 does not divide the images: the last batch is smaller and must count once.
    test = load("digits", "test", SIZE, 50, classes=classes)
    model = classifier(len(test.class_names))
    results = evaluate(model, test)
    batches = list(test.as_numpy_iterator())
    logits = np.concatenate([to_numpy(model(batch)) for batch, _ in batches]).astype("float64")
    labels = np.concatenate([labels for _, labels in batches])
    assert results["images"] == len(labels) == test.num_examples
    assert results["accuracy"] == pytest.approx((logits.argmax(-1) == labels).mean(), abs=1e-6)
    log_sum = np.log(np.exp(logits).sum(-1))
    loss = (log_sum - logits[np.arange(len(labels)), labels]).mean()
    assert results["loss"] == pytest.approx(loss, rel=1e-4)
    if classes is None:
        top_5 = (np.argsort(-logits)[:, :5] == labels[:, None]).any(-1).mean()
        assert results["top_5_accuracy"] == pytest.approx(top_5, abs=1e-6)
    else:
        assert "top_5_accuracy" not in results


def test_the_models_compilation_stays():
    model = classifier(10)
    optimizer = keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    evaluate(model, load("digits", "test", SIZE, 50))
    assert model.optimizer is optimizer


def test_other_classes():
    with pytest.raises(ValueError, match="must have the model's 3 classes.*10 classes"):
        evaluate(classifier(3), load("digits", "test", SIZE, 50))


@pytest.mark.parametrize(
    ("name", "gigaflops"),
    # Multiply-adds as published for DeiT (arXiv 2012.12877: Ti 1.3, S 4.6, B 17.6) and
    # timm (L/16 61.6, B/32 4.4); an operation more for each addition.
    [("ViT_Ti16", 1.3), ("ViT_S16", 4.6), ("ViT_B16", 17.6), ("ViT_L16", 61.6), ("ViT_B32", 4.4)],
)
def test_operations_are_the_published_ones(name, gigaflops):
    assert count_flops(find_variant(name)) / 2e9 == pytest.approx(gigaflops, abs=0.06)


@pytest.mark.parametrize("row", SCALING_STUDY, ids=lambda row: f"{row.name}, {row.epochs}")
def test_operations_of_the_scaling_study(row):
    """The paper's compute: 303M images of 18k classes an epoch, at 3 forward passes a step.

    The paper counts 4 % less than these for its ResNets, and for one hybrid 3 % more for 7 epochs
    than half of what it says of 14.
    """
    flops = 3 * count_flops(find_variant(row.builder), num_classes=18_000)
    assert 303e6 * row.epochs * flops / 1e18 == pytest.approx(row.exaflops, rel=0.055)


def test_the_scaling_study_names_its_models():
    for row in SCALING_STUDY:
        name = row.name.replace("R50x1+ViT-", "R50_").replace("ViT-", "ViT_").replace("/", "")
        assert row.builder == (name if "_" in name else f"BiT_{name}")
