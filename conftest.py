"""Names that the docstrings' examples use without importing them."""

import os

import keras
import numpy as np
import pytest

import keras_vit

# Otherwise OpenVINO and NNCF send usage statistics, from processes that they fork.
os.environ.setdefault("CI", "true")

if keras.backend.backend() != "tensorflow":
    # As their tests: tf.data and files are the same on every backend, and TensorFlow serves.
    collect_ignore = [f"keras_vit/{wing}" for wing in ("cli", "data", "experiments", "serving")]


# Examples that take two seconds and more: trainings, exports, evaluations.
SLOW_EXAMPLES = {
    *("attention_maps", "attention_rollout", "attention_distance", "segment", "features"),
    *("train", "train_seeds", "vtab", "open_trained", "MeasureRegularly", "FewshotAccuracy"),
    *("extract_features", "read_features", "evaluate_fewshot"),
    *("export", "load_runner", "Predictor"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.rpartition(".")[2] in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace, tmp_path):
    doctest_namespace.update(keras=keras, keras_vit=keras_vit, np=np, tmp_path=tmp_path)
