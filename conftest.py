"""What the docstrings' examples may use without importing it."""

import keras
import numpy as np
import pytest

import keras_vit


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace, tmp_path):
    doctest_namespace.update(keras=keras, keras_vit=keras_vit, np=np, tmp_path=tmp_path)
