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


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace, tmp_path):
    doctest_namespace.update(keras=keras, keras_vit=keras_vit, np=np, tmp_path=tmp_path)
