"""Models, runs and exports of the commit before the redesign load and give the same numbers."""

import dataclasses
import pathlib
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models.files import load_model
from tests.fixtures.contract import to_numpy
from tests.fixtures.run_to_be_killed import RECIPE, train

FOLDER = pathlib.Path(__file__).parent / "data" / "before_redesign"
EXPECTED = np.load(FOLDER / "expected.npz")
MODELS = ("vit", "bit", "composed")


@pytest.mark.parametrize("load", [keras.models.load_model, load_model, keras_vit.from_checkpoint])
@pytest.mark.parametrize("name", MODELS)
def test_models_load(name, load):
    model = load(FOLDER / f"{name}.keras")
    logits = to_numpy(model(EXPECTED["images"]))
    # The numbers were made by an optimized graph.
    np.testing.assert_allclose(logits, EXPECTED[name], rtol=0, atol=5e-6)
    trainable = [variable.path for variable in model.trainable_variables]
    assert trainable == EXPECTED[f"{name}_trainable"].tolist()


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_can_be_changed_and_inspected(name):
    model = keras.models.load_model(FOLDER / f"{name}.keras")
    resized = keras_vit.resize(model, (24, 16))
    assert resized.output_shape == (None, 3)
    assert keras_vit.replace_head(model, 5).output_shape == (None, 5)
    if name == "bit":
        return
    scores = keras_vit.attention_maps(model, EXPECTED["images"])
    assert scores["block_0"].shape[:2] == (2, 2)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the state was written on TensorFlow")
def test_a_stopped_run_resumes(tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(FOLDER / "run", workdir)
    model, history = train(workdir, dataclasses.replace(RECIPE, steps=18))
    accuracies = [metrics["val_accuracy"] for metrics in history]
    assert accuracies == EXPECTED["run_val_accuracy"].tolist()
    for variable in model.weights:
        expected = EXPECTED[f"run/{variable.path}"]
        np.testing.assert_allclose(to_numpy(variable.value), expected, rtol=0, atol=1e-6)


def test_an_export_is_served():
    tf = pytest.importorskip("tensorflow")
    served = tf.saved_model.load(str(FOLDER / "export" / "1")).signatures["float"]
    (name,) = served.structured_input_signature[1]
    outputs = served(**{name: tf.constant(EXPECTED["images"])})
    np.testing.assert_allclose(outputs["logits"], EXPECTED["vit"], rtol=0, atol=1e-6)
