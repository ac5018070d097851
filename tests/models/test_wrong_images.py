"""Images of another shape, order of axes or scale than a model's: refused, never answered."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import ImageModel, resnet, vision_transformer
from tests.fixtures.contract import to_numpy
from tests.fixtures.tiny import TINY

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PIXELS)
LABELS = np.arange(4) % 3
SHAPES = {
    # Four times, or as many patches as an image of 16 x 16 pixels has; incomplete patches.
    "larger": (1, 32, 32, 3),
    "wide": (1, 8, 32, 3),
    "incomplete": (1, 18, 18, 3),
    "channels first": (4, 3, 16, 16),
    "six channels": (2, 16, 16, 6),
    "one channel": (2, 16, 16, 1),
}
# By models of images of any size.
ANSWERED = {"ResNet": ("larger", "wide", "incomplete"), "any size": ("larger", "wide")}
HYBRID = {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 2, "image_size": 16}


@pytest.fixture
def compiled():
    model = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 3})
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (PIXELS, "must be scaled to .*preprocess.* of dtype uint8"),
        (PIXELS.astype("float32"), "must be scaled to .*preprocess.* values from"),
        (SCALED[0], r"`x` must be an array \(batch, 16, 16, 3\).* Received: .*\(16, 16, 3\)"),
        (SCALED.transpose(0, 3, 1, 2), r"`x` must be an array .*shape \(4, 3, 16, 16\)"),
        (list(SCALED), "`x` must be an array of images, as `np.stack` .* Received: a list of 4"),
        ([PIXELS.astype("float32")], "must be scaled to .*preprocess.* values from"),
        ({"images": PIXELS.astype("float32")}, "must be scaled to .*preprocess.* values from"),
    ],
    ids=["integers", "pixels", "one image", "channels first", "a list", "in a list", "by name"],
)
def test_arrays(use, images, message, compiled):
    labels = () if use == "predict" else (np.zeros(len(images)),)
    with pytest.raises(ValueError, match=message):
        getattr(compiled, use)(images, *labels, verbose=0)


def test_integers_in_batches(compiled):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return PIXELS, np.zeros(4)

    for use in (compiled.fit, compiled.evaluate, compiled.predict):
        # With JAX and torch, Keras 3.12 raises another one with the same text.
        is_wrapped = keras.backend.backend() != "tensorflow"
        errors = (ValueError, RuntimeError) if is_wrapped else ValueError
        with pytest.raises(errors, match="must be scaled to .*preprocess.* of dtype uint8"):
            use(Batches(), verbose=0)
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        compiled(PIXELS)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["train_on_batch", "test_on_batch", "predict_on_batch"])
def test_one_batch(use, compiled):
    labels = () if use == "predict_on_batch" else (np.zeros(4),)
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* values from"):
        getattr(compiled, use)(PIXELS.astype("float32"), *labels)
    getattr(compiled, use)(SCALED, *labels)


def test_calls(compiled):
    """Eager calls are checked, also where the model is a layer of another one."""
    whole = keras.Sequential([keras.Input((16, 16, 3)), compiled])
    for model in (whole, compiled, whole, compiled):
        with pytest.raises(ValueError, match="must be scaled to .*preprocess.* values from"):
            model(PIXELS.astype("float32"))
        model(SCALED)


@pytest.mark.slow
def test_steps_are_checked_once(compiled, monkeypatch):
    """An accelerator would have to wait for each check; the other backends trace the steps."""
    checks = []
    monkeypatch.setattr("keras_vit.models.model.check_range", checks.append)
    # Not checked before: a generator.
    batches, validation = (((SCALED, LABELS) for _ in range(6)) for _ in range(2))
    steps = {"epochs": 3, "steps_per_epoch": 2, "validation_steps": 2, "shuffle": False}
    compiled.fit(batches, validation_data=validation, verbose=0, **steps)
    assert len(checks) == (keras.backend.backend() == "torch")
    before = len(checks)
    compiled(SCALED)
    assert len(checks) == before + 1


def dataset(images, labels=True):
    tf = pytest.importorskip("tensorflow")
    parts = (images, np.zeros(len(images))) if labels else images
    return tf.data.Dataset.from_tensor_slices(parts).batch(2)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
def test_datasets(use, compiled):
    weights = compiled.get_weights()
    has_labels = use != "predict"
    options = {"verbose": 0} | ({"shuffle": False} if use == "fit" else {})
    for images in (PIXELS.astype("float32"), PIXELS.astype("float16")):
        first = images[0].astype("float32")
        values = re.escape(f"values from {first.min()} to {first.max()}")
        with pytest.raises(ValueError, match=rf"^`x` must be .* {values}$") as error:
            getattr(compiled, use)(dataset(images, has_labels), **options)
        assert error.value.__suppress_context__
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        getattr(compiled, use)(dataset(PIXELS, has_labels), **options)
    # Keras on JAX had taken the weights out of the model.
    for before, after in zip(weights, compiled.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    outputs = compiled.predict(SCALED, verbose=0)
    found = compiled.predict(dataset(SCALED, labels=False), verbose=0)
    np.testing.assert_allclose(found, outputs, rtol=0, atol=1e-6)
    # Later images may have outliers.
    scaled = np.concatenate([SCALED, 12 * SCALED])
    getattr(compiled, use)(dataset(scaled, has_labels), **options)


@pytest.mark.slow
def test_a_dataset_of_pixels_divided_by_255_is_told_once(compiled, caplog):
    divided = PIXELS.astype("float32") / 255
    compiled.fit(
        dataset(divided), validation_data=dataset(divided), epochs=2, shuffle=False, verbose=0
    )
    told = "values in [0, 1], as if divided by 255"
    assert caplog.text.count(told) == 1
    compiled.predict(dataset(divided, labels=False), verbose=0)
    assert caplog.text.count(told) == 2
    compiled.predict(dataset(SCALED, labels=False), verbose=0)
    assert caplog.text.count(told) == 2


@pytest.mark.slow
@pytest.mark.parametrize("last", [1, 39])
def test_an_error_of_the_data_keeps_the_last_step(last, compiled):
    class Ending(keras.utils.PyDataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            if index == last:
                raise OSError("gone")
            return SCALED, LABELS

    compiled.compile(keras.optimizers.SGD(0.1, momentum=0.9), compiled.loss)
    before = compiled.evaluate(SCALED, LABELS, verbose=0)
    with pytest.raises(Exception, match="gone"):
        compiled.fit(Ending(), shuffle=False, verbose=0)
    steps = int(compiled.optimizer.iterations)
    after = compiled.evaluate(SCALED, LABELS, verbose=0)
    assert after < before if steps else after == before
    assert steps or last == 1
    compiled.fit(SCALED, LABELS, verbose=0)
    assert int(compiled.optimizer.iterations) == steps + 1


@pytest.mark.slow
def test_a_model_that_scales_takes_pixels(compiled):
    images = keras.Input((16, 16, 3))
    whole = ImageModel(images, compiled(keras.layers.Rescaling(1 / 127.5, -1)(images)))
    expected = compiled.predict(SCALED, verbose=0)
    for outputs in (whole.predict(PIXELS, verbose=0), to_numpy(whole(PIXELS))):
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the others compile for each shape")
@pytest.mark.parametrize("family", ["ViT", "hybrid", "ResNet", "any size"])
@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_of_any_shape(family, shape):
    """Keras traces one after two shapes, in which TensorFlow answered whatever came."""
    import tensorflow as tf

    images = keras.Input((16, 16, 3))
    if family == "ResNet":
        model = resnet(stages=(1,), width=32, image_size=16, num_classes=3)
    else:
        sizes = HYBRID if family == "hybrid" else {"image_size": 16}
        model = vision_transformer(**{**TINY, **sizes, "num_classes": 3})
    if family == "any size":
        model, images = keras_vit.resize(model), keras.Input((None, None, 3))
    # Without the checks of arrays.
    plain = keras.Model(images, model(images))
    plain.predict(SCALED, verbose=0)
    plain.predict(SCALED[:2], verbose=0)
    wrong = np.zeros(SHAPES[shape], "float32")
    if shape in ANSWERED.get(family, ()):
        assert len(plain.predict(wrong, verbose=0)) == len(wrong)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError):
            plain.predict(wrong, verbose=0)
    assert len(plain.predict(SCALED[:3], verbose=0)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [300, np.nan])
def test_an_image_that_is_first_in_a_later_epoch(wrong, compiled):
    images = SCALED.copy()
    images[1] = wrong
    # Each epoch begins with the next image.
    epochs = iter(range(9))
    tf = pytest.importorskip("tensorflow")
    spec = tf.TensorSpec((), tf.int64)
    start = tf.data.Dataset.from_generator(lambda: [next(epochs)], output_signature=spec)
    rolled = start.flat_map(
        lambda epoch: tf.data.Dataset.from_tensor_slices(
            (tf.roll(images, -epoch, axis=0), np.zeros(len(images)))
        )
    )
    with pytest.raises(ValueError, match=f"^`x` must be .* values from {float(wrong)} to "):
        rolled = rolled.apply(tf.data.experimental.assert_cardinality(len(images)))
        compiled.fit(rolled.batch(len(images)), shuffle=False, verbose=0, epochs=3)
