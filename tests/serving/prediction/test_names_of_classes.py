"""`Predictor` of a model without names of classes."""

import pytest

from keras_vit.serving import Predictor
from tests.fixtures.models import NAMES, small_classifier


@pytest.mark.parametrize("names", [NAMES, None])
def test_a_model_without_names_of_classes_is_told(names, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    model = small_classifier("token")
    model.class_names = names
    model.save(tmp_path / "model.keras")
    assert Predictor(tmp_path / "model.keras").model.class_names == (names and list(names))
    assert ("no names of classes, only numbers" in caplog.text) == (names is None)
