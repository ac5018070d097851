"""The table of export formats: a new format needs a file and a row."""

import configparser
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS, find_export
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import NAMES, classifier, files, preprocessed
from tests.fixtures.predicted.predictors import export_predictor
from tests.fixtures.serving.toy_format import TOY

SETTINGS = pathlib.Path(__file__).parents[3] / "setup.cfg"


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(FORMATS, "toy", TOY)


@pytest.mark.slow
def test_a_new_format_is_exported_and_read_back(toy, tmp_path):
    model, encoded = classifier(), files(3)
    for number in (1, 2):
        version = export(model, tmp_path / "pets", format="toy", class_names=NAMES)
        assert version == find_export(tmp_path / "pets") == tmp_path / "pets" / str(number)
    pixels = preprocessed(encoded, (16, 16))
    expected = model.predict(pixels, verbose=0)
    logits = load_runner(version / "model.keras")(pixels)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)
    predict = export_predictor(find_export(version / "model.keras"))
    assert [predict(file)[0][0] for file in encoded] == [NAMES[i] for i in expected.argmax(axis=1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "toys"}, "`format` must be one of .*'openvino', 'toy'.*'toys'"),
        ({"quantize": "int8"}, r"`quantize` must be one of \('int4', None\)"),
    ],
)
def test_errors_name_a_new_format(options, message, toy, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(classifier(), tmp_path, **{"format": "toy", **options})


def test_a_missing_package_of_a_format_is_named(toy, tmp_path):
    with pytest.raises(ImportError, match=r"pip install 'keras-vit-zoo\[toy\]'.*no_such_package"):
        export(classifier(), tmp_path, format="toy", quantize="int4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_a_format_has_an_extra(row):
    settings = configparser.ConfigParser()
    settings.read(SETTINGS)
    # TensorFlow writes and runs SavedModels, and comes with this package.
    assert row.has_signatures or row.name in settings["options.extras_require"]


def test_the_table_needs_neither_keras_nor_tensorflow():
    code = "import sys, keras_vit.serving.formats; print({'keras', 'tensorflow'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "set()\n"
