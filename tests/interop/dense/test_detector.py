"""A detector of KerasHub learns on our backbone."""

import pathlib
import runpy

import keras
import numpy as np

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "09_detector_on_keras_hub.py"


def test_the_loss_falls_and_the_detector_is_saved(tmp_path, capsys):
    found = runpy.run_path(str(EXAMPLE))
    losses = found["losses"]
    assert losses[-1] < losses[0] / 3
    assert "The loss fell" in capsys.readouterr().out
    detector = found["detector"]
    images, _ = found["photographs_with_boxes"](2, seed=1)
    detector.save(tmp_path / "detector.keras")
    again = keras.models.load_model(tmp_path / "detector.keras")
    for name, expected in detector(images).items():
        np.testing.assert_allclose(again(images)[name], expected, rtol=0, atol=1e-5)
