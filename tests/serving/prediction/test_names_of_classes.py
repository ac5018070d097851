"""`Predictor` of a model without names of classes."""

import pytest

from keras_vit.serving import Predictor
from tests.fixtures.models import NAMES, small_classifier


@pytest.mark.parametrize("names", [NAMES, None])
def test_missing_class_names_are_logged(names, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    model = small_classifier("token")
    model.class_names = names
    model.save(tmp_path / "model.keras")
    assert Predictor(tmp_path / "model.keras").model.class_names == (names and list(names))
    assert ("has no class names, so predictions are numbers" in caplog.text) == (names is None)
