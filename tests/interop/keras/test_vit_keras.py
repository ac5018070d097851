"""The weights of a model that the real vit-keras built."""

import pathlib
import runpy

import numpy as np
import pytest

import keras_vit
from tests.fixtures.contract import randomise

pytest.importorskip("vit_keras", reason="vit-keras 0.2 needs Python 3.11")
EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "10_moving_on_from_vit_keras.py"


def test_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.parametrize("representation_size", [None, 16])
def test_its_weights_give_the_same_probabilities(representation_size, tmp_path):
    from vit_keras import vit

    sizes = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "mlp_dim": 48, "classes": 3}
    head = {"activation": "softmax", "representation_size": representation_size}
    theirs = vit.build_model((48, 32), 8, name="small", **sizes, **head)
    randomise(theirs)
    np.savez(tmp_path / "small.npz", **runpy.run_path(str(EXAMPLE))["google_arrays"](theirs))
    ours = keras_vit.from_checkpoint(
        tmp_path / "small.npz",
        image_size=(48, 32),
        num_heads=4,
        activation="gelu",
        classifier_activation="softmax",
    )
    images = np.random.default_rng(0).normal(size=(2, 48, 32, 3)).astype("float32")
    expected = theirs.predict(images, verbose=0)
    np.testing.assert_allclose(ours.predict(images, verbose=0), expected, rtol=0, atol=1e-5)
