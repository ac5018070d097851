"""Thresholds that models of several labels carry."""

import keras
import pytest

import keras_vit
from keras_vit.models import ImageModel, vision_transformer
from tests.fixtures.tiny import TINY


def test_models_carry_thresholds(tmp_path):
    model = vision_transformer(**{**TINY, "num_classes": 3})
    assert model.thresholds is None
    model.thresholds = [0.5, 0.25, 0.125]
    model.save(tmp_path / "model.keras")
    for each in (
        keras.models.load_model(tmp_path / "model.keras"),
        ImageModel.from_config(model.get_config()),
        keras_vit.resize(model, 32),
        keras_vit.from_checkpoint(tmp_path / "model.keras"),
    ):
        assert each.thresholds == (0.5, 0.25, 0.125)
    assert keras_vit.replace_head(model, 3).thresholds is None
    assert keras_vit.from_checkpoint(tmp_path / "model.keras", num_classes=2).thresholds is None
    config = {key: value for key, value in model.get_config().items() if key != "thresholds"}
    assert ImageModel.from_config(config).thresholds is None
    with pytest.raises(ValueError, match="must be 3 numbers between 0 and 1, one for each class"):
        model.thresholds = (0.5, 0.5)
    assert model.thresholds == (0.5, 0.25, 0.125)
    model.thresholds = None
    assert model.thresholds is None
