"""Run in an environment without TensorFlow: the core imports, builds, trains, saves and reloads."""

import importlib.util
import pathlib
import tempfile

import keras
import numpy as np

import keras_vit

assert importlib.util.find_spec("tensorflow") is None, "this environment has TensorFlow"

images = keras_vit.preprocess(np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3)))
model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images, np.array([0, 1, 2, 0]), verbose=0)
resized = keras_vit.resize(keras_vit.replace_head(model, 5), (48, 32))
assert resized.predict(np.zeros((1, 48, 32, 3)), verbose=0).shape == (1, 5)
assert keras_vit.features(model, images, ["block_3"])["block_3"].shape == (4, 5, 192)

with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
np.testing.assert_array_equal(loaded.predict(images, verbose=0), model.predict(images, verbose=0))

for what, needs_tensorflow in (
    ("data.load", lambda: keras_vit.data.load("digits", "test", (32, 32), 4)),
    ("export", lambda: keras_vit.export(model, "unused")),
):
    try:
        needs_tensorflow()
    except ImportError as error:
        assert "tensorflow" in str(error)
    else:
        raise AssertionError(f"{what} worked without TensorFlow")
print("1 passed, 0 failed")
