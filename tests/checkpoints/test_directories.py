"""Directories of transformers: the directory alone gives the logits and the names of classes."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from tests.fixtures.commands import run
from tests.fixtures.images import encode
from tests.fixtures.reference import assert_intermediate, assert_logits, case_outputs, case_path

CASES = ("hf_tf_h5_classifier", "hf_vit_imagenet_mean_std", "hf_dinov2_classifier")
NAMES = ("cat", "dog", "owl")
CASE = pytest.mark.parametrize("case", CASES)


def loaded(case):
    return keras_vit.from_checkpoint(case_path(case))


def logits_of(model, images):
    return ops.convert_to_numpy(model(images))


@CASE
def test_outputs(case, caplog):
    model, reference = loaded(case), case_outputs(case)
    assert_logits(logits_of(model, reference["images"]), reference["logits"])
    if "last_hidden_state" in reference:
        tokens = model.get_layer("encoder_norm").output
        encoded = keras.Model(model.input, tokens)(reference["images"])
        assert_intermediate(ops.convert_to_numpy(encoded), reference["last_hidden_state"])
    assert not caplog.messages


@pytest.mark.parametrize("option", [{"activation": "gelu_tanh"}, {"epsilon": 1e-2}])
def test_other_conventions_give_other_logits(option):
    reference = case_outputs("hf_dinov2_classifier")
    model = keras_vit.from_checkpoint(case_path("hf_dinov2_classifier"), **option)
    assert np.abs(logits_of(model, reference["images"]) - reference["logits"]).max() > 5e-5


@CASE
def test_names_of_classes_travel(case, tmp_path):
    model = loaded(case)
    assert model.class_names == NAMES
    model.class_names = NAMES
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    keras_vit.save_checkpoint(again, tmp_path / "saved", "huggingface")
    saved = keras_vit.from_checkpoint(tmp_path / "saved")
    assert again.class_names == saved.class_names == NAMES
    images = case_outputs(case)["images"]
    np.testing.assert_allclose(
        logits_of(saved, images), logits_of(model, images), rtol=0, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="exports and predictions are made with TensorFlow")
@CASE
def test_names_of_classes_are_served(case, tmp_path, capsys):
    import tensorflow as tf

    model, reference = loaded(case), case_outputs(case)
    model.class_names = NAMES
    version = keras_vit.export(model, tmp_path / "served")
    served = tf.saved_model.load(version).signatures["float"]
    outputs = served(images=tf.constant(reference["images"]))
    assert_logits(outputs["logits"].numpy(), reference["logits"])
    best = [NAMES[index] for index in reference["logits"].argmax(-1)]
    assert [label.decode() for label in outputs["top_k_labels"].numpy()[:, 0]] == best
    keras_vit.save_checkpoint(model, tmp_path / "saved", "huggingface")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype("uint8")
    (tmp_path / "photo.png").write_bytes(encode(pixels))
    printed = run(capsys, "predict", tmp_path / "saved", tmp_path / "photo.png")
    assert all(name in printed for name in NAMES)
