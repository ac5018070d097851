"""Warnings of `fit`, and of changes after `compile`."""

import keras
import numpy as np
import pytest
from keras_vit.models.calls.losses import warn_of_loss

import keras_vit
from keras_vit.models import vision_transformer
from tests.fixtures.tiny import TINY

NAME = "sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (NAME, {}, "returns logits, and the loss sparse_categorical_crossentropy takes probab"),
        (keras.losses.CategoricalCrossentropy(), {}, "the loss categorical_crossentropy takes"),
        (keras.losses.binary_crossentropy, {}, "the loss binary_crossentropy takes probab"),
        (keras.losses.BinaryCrossentropy(name="bce"), {}, "the loss binary_crossentropy takes"),
        ([NAME], {}, None),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), {}, None),
        (NAME, {"classifier_activation": "softmax"}, None),
        (NAME, {"num_classes": 0}, "has no head: the loss sparse_categorical_crossentropy takes"),
        ("mse", {"num_classes": 0}, None),
        (None, {}, None),
    ],
)
def test_a_loss_of_probabilities(loss, options, message, caplog):
    model = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 3, **options})
    model.compile("sgd", loss)
    warn_of_loss(model)
    assert bool(caplog.records) == bool(message)
    assert (message or "") in caplog.text


@pytest.mark.slow
def test_fit_warns(caplog, tmp_path):
    model = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 3})
    model.compile("sgd", NAME)
    model.save(tmp_path / "model.keras")
    # Keras compiles a loaded model only if its class has the `compile` of Keras.
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(np.zeros((2, 16, 16, 3)), np.zeros(2), verbose=0)
    assert "takes probabilities" in caplog.text


def test_what_is_frozen_after_compile(caplog):
    model = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 3})
    keras_vit.freeze_blocks(model, 1)
    assert not caplog.records
    model.compile("sgd")
    keras_vit.freeze_blocks(model, 0)
    model = keras_vit.enable_lora(model, rank=1)
    assert caplog.text.count("compile the model again") == 2
