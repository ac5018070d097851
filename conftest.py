"""What the docstrings' examples may use without importing it."""

import os

import keras
import numpy as np
import pytest

import keras_vit

# Or OpenVINO and NNCF would tell their makers that they are used, from processes that they fork.
os.environ.setdefault("CI", "true")


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace, tmp_path):
    doctest_namespace.update(keras=keras, keras_vit=keras_vit, np=np, tmp_path=tmp_path)
