"""The table of export formats: a new format needs a file and a row."""

import numpy as np
import pytest

from keras_vit.serving import Predictor
from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS, find_export
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import NAMES, classifier, files, preprocessed
from tests.fixtures.serving.toy_format import TOY


@pytest.mark.slow
def test_a_new_format_is_exported_and_read_back(monkeypatch, tmp_path):
    monkeypatch.setitem(FORMATS, "toy", TOY)
    model, encoded = classifier(), files(3)
    for number in (1, 2):
        version = export(model, tmp_path / "pets", format="toy", class_names=NAMES)
        assert version == find_export(tmp_path / "pets") == tmp_path / "pets" / str(number)
    pixels = preprocessed(encoded, (16, 16))
    expected = model.predict(pixels, verbose=0)
    logits = load_runner(version / "model.keras")(pixels)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)
    found = Predictor(version / "model.keras")({"bytes": encoded})["prediction"]
    assert found.tolist() == [NAMES[i] for i in expected.argmax(axis=1)]
