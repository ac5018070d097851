"""What an export says of itself, and of the images that it is calibrated on."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit.serving.export import _facts, export
from keras_vit.serving.quantization import warn_of_calibration
from tests.fixtures.images import random_image
from tests.fixtures.models import classifier


def test_facts_of_the_model_cannot_be_replaced(tmp_path):
    with pytest.raises(ValueError, match="`facts` must not have .*Received: 'num_classes'"):
        export(classifier(), tmp_path / "pets", format="onnx", facts={"num_classes": 77})
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"dropout": 0.1}, {}),
        ({"num_registers": 4}, {"num_registers": 4}),
        ({"pooling": "map"}, {"pooling": "map"}),
        ({"activation": "gelu"}, {"activation": "gelu"}),
        ({"representation_size": 8}, {"representation_size": 8}),
    ],
    ids=str,
)
def test_the_variant_and_other_options_are_recorded(options, others, tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=(16, 32), **options)
    facts = _facts(model, "onnx", None)
    assert (facts["variant"], facts["options"]) == ("ViT_Ti16", others)


def test_a_model_that_is_no_variant_has_all_its_options_recorded():
    facts = json.loads(json.dumps(_facts(classifier(patch_size=(4, 8)), "onnx", None)))
    assert facts["variant"] is None
    assert facts["options"]["patch_size"] == [4, 8]
    assert facts["options"]["depth"] == 2


def test_a_head_of_zeros_is_named(tmp_path, caplog):
    model = classifier()
    export(model, tmp_path, format="litert")
    assert "zero" not in caplog.text
    model.get_layer("head").kernel.assign(np.zeros((8, 3)))
    export(model, tmp_path, format="litert")
    assert "the same logits of the 3 classes: the kernel of the model's head is zero" in caplog.text


def test_calibration_images_that_show_no_range(caplog):
    images = np.stack([random_image(16, 16, seed=i) for i in range(10)]) / 127.5 - 1
    warn_of_calibration(images)
    assert not caplog.messages
    images[3] = 0.5
    warn_of_calibration(images[:9])
    assert caplog.messages[0].startswith("int8 is calibrated on 9 images")
    assert caplog.messages[1] == "1 of 9 calibration images are almost constant"


def test_epochs_without_a_finite_loss_have_no_accuracy(tmp_path):
    from keras_vit.cli.export import _read_accuracies

    losses = ("0.0", "null", "NaN", "0.5")
    lines = [
        f'{{"val_loss": {loss}, "val_accuracy": 0.{number}}}\n'
        for number, loss in enumerate(losses, start=1)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    assert _read_accuracies(tmp_path / "metrics.jsonl") == [0.1, 0.4]
