"""Which devices TensorFlow may use."""

import keras
import pytest
import tensorflow as tf

from keras_vit.data.images.decoding import leave_accelerators


@pytest.fixture
def hidden(monkeypatch):
    calls = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *call: calls.append(call))
    return calls


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_only_the_backend_has_accelerators(monkeypatch, hidden, backend):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    leave_accelerators()
    assert hidden == ([] if backend == "tensorflow" else [([], "GPU"), ([], "TPU")])


def test_after_the_first_operation_nothing_changes(monkeypatch):
    def refuse(*call):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(tf.config, "set_visible_devices", refuse)
    leave_accelerators()
