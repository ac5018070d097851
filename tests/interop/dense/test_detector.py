"""A detector of KerasHub learns on our backbone."""

import pathlib
import runpy

import keras
import numpy as np

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "09_detector_on_keras_hub.py"


def test_the_loss_falls_and_the_backbone_is_saved(tmp_path, capsys):
    """KerasHub does not load the optimizer of a detector that was compiled again."""
    found = runpy.run_path(str(EXAMPLE))
    losses = found["losses"]
    assert losses[-1] < losses[0] / 3
    assert "The loss fell" in capsys.readouterr().out
    backbone = found["detector"].backbone
    images, _ = found["photographs_with_boxes"](2, seed=1)
    backbone.save(tmp_path / "backbone.keras")
    again = keras.models.load_model(tmp_path / "backbone.keras")
    expected = backbone(images)
    assert set(expected) == {"P3", "P4", "P5"}
    for name, actual in again(images).items():
        actual, wanted = map(keras.ops.convert_to_numpy, (actual, expected[name]))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-5)
