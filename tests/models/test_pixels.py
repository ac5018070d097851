"""Images that are not scaled to [-1, 1]: refused, or warned about once."""

import pathlib
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.core.pixels import check_pixels
from keras_vit.inspection.distance import attention_distance
from keras_vit.inspection.figures import draw_predictions
from keras_vit.inspection.masked_patches import draw_masked_patches
from keras_vit.inspection.report import write_report
from keras_vit.layers import PatchEmbedding, StandardizedConv2D
from keras_vit.models import vision_transformer
from keras_vit.serving.quantization import check_images
from tests.models.test_vit import TINY

RULE = r"must be scaled to \[-1, 1\], as `keras_vit.preprocess` does\. Received: "
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


@pytest.fixture(scope="module")
def model():
    return vision_transformer(**TINY)


def draw(model, images, path):
    draw_predictions(model, images, np.zeros(4, int), ["a", "b", "c"], path / "picture.png")


CALLS = {
    "features": lambda model, images, _: keras_vit.features(model, images),
    "maps": lambda model, images, _: keras_vit.attention_maps(model, images),
    "rollout": lambda model, images, _: keras_vit.attention_rollout(model, images),
    "distance": lambda model, images, _: attention_distance(model, images),
    "report": lambda model, images, path: write_report(model, images, path),
    "predictions": draw,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS, "images of dtype uint8"),
        (PHOTOS.astype("int32"), "images of dtype int32"),
        (PHOTOS > 100, "images of dtype bool"),
        (PHOTOS.astype("float32"), r"values from 0\.0 to 255\.0"),
        (np.where(PHOTOS > 254, np.nan, SCALED), "values from nan to nan"),
        (np.where(PHOTOS > 254, np.inf, SCALED), "to inf"),
    ],
    ids=["uint8", "int32", "bool", "float", "nan", "inf"],
)
def test_pixels_are_refused(call, images, received, model, tmp_path):
    with pytest.raises(ValueError, match=f"`images` {RULE}.*{received}"):
        call(model, images, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS / 255, r"values in \[0, 1\]"),
        ((PHOTOS / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], r"beyond \[-1, 1\]"),
    ],
    ids=["0 to 1", "means and deviations"],
)
def test_what_may_be_wrong_is_warned_about(call, images, received, model, tmp_path):
    with pytest.warns(UserWarning, match=f"^Images {RULE}.*{received}") as found:
        call(model, images.astype("float32"), tmp_path)
    # Python shows those of one line once.
    assert len({(str(w.message), w.lineno) for w in found if is_ours(w)}) == 1


def is_ours(warning):
    """Whether a warning is of a line in this file: Keras has its own for torch."""
    return pathlib.Path(warning.filename) == pathlib.Path(__file__)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_right_is_not_warned_about(call, model, tmp_path):
    call(model, SCALED, tmp_path)


def test_values_that_may_be_right_are_not_warned_about():
    # Bicubic interpolation goes a little further.
    for images in (SCALED * 1.3, np.zeros_like(SCALED), np.ones_like(SCALED)):
        check_pixels(images)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_tensors(dtype):
    check = ops.cast(ops.convert_to_tensor(SCALED), "float32")
    check_pixels(check)
    if dtype == "uint8":
        with pytest.raises(ValueError, match=f"{RULE}images of dtype uint8"):
            check_pixels(ops.convert_to_tensor(PHOTOS))
        return
    check_pixels(ops.cast(check, dtype))
    with pytest.raises(ValueError, match=f"{RULE}values from"):
        check_pixels(ops.cast(check * 100, dtype))


def test_datasets(model):
    import tensorflow as tf

    labels = np.zeros(4, "int64")
    for images, message in (
        (PHOTOS, "images of dtype uint8"),
        # As of `keras.utils.image_dataset_from_directory`.
        (PHOTOS.astype("float32"), r"values from 0\.0 to 255\.0"),
    ):
        for arrays in (images, (images, labels)):
            dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(2)
            for call in (keras_vit.features, keras_vit.attention_maps):
                with pytest.raises(ValueError, match=f"{RULE}.*{message}"):
                    call(model, dataset)
    dataset = tf.data.Dataset.from_tensor_slices((SCALED, labels)).batch(2)
    np.testing.assert_allclose(
        keras_vit.features(model, dataset), keras_vit.features(model, SCALED), rtol=0, atol=1e-6
    )


def test_lists_and_dictionaries():
    for images in ([PHOTOS], {"images": PHOTOS}):
        with pytest.raises(ValueError, match=f"{RULE}images of dtype uint8"):
            check_pixels(images)
    check_pixels([])
    check_pixels(np.zeros((0, 16, 16, 3), "float32"))


def test_a_model_that_scales_its_inputs_takes_pixels(model):
    images = keras.Input((16, 16, 3))
    x = keras.layers.Rescaling(1 / 127.5, -1)(images)
    # Its own inputs are the scaled images.
    for layer in model.layers[1:-1]:
        x = layer(x)
    scaling = keras.Model(images, x)
    np.testing.assert_allclose(
        keras_vit.features(scaling, PHOTOS.astype("float32")),
        keras_vit.features(model, SCALED),
        rtol=0,
        atol=1e-5,
    )


def test_masked_patches(tmp_path):
    inputs = {"images": PHOTOS, "corruption": np.zeros((4, 16), "int32")}
    predictor = vision_transformer(**{**TINY, "pooling": None, "num_classes": 0})
    with pytest.raises(ValueError, match=f"`images` {RULE}images of dtype uint8"):
        draw_masked_patches(
            predictor, (inputs, np.zeros((4, 16), "int32"), np.ones((4, 16))), tmp_path / "x.png"
        )


def test_calibration_images():
    with pytest.warns(UserWarning, match=r"values in \[0, 1\]"):
        check_images("onnx", "int8", (PHOTOS / 255).astype("float32"), (16, 16))
    with pytest.raises(ValueError, match="Received: values from 0.0 to 255.0"):
        check_images("onnx", "int8", PHOTOS.astype("float32"), (16, 16))


@pytest.mark.parametrize(
    "layer", [lambda: PatchEmbedding(8, 4), lambda: StandardizedConv2D(8, 3)], ids=["patch", "conv"]
)
def test_layers_refuse_integers(layer):
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        layer()(PHOTOS)
    images = keras.Input((16, 16, 3), dtype="uint8")
    model = keras.Model(images, layer()(images))
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        model.predict(PHOTOS, verbose=0)


@pytest.mark.parametrize(
    "images", [PHOTOS / 255, SCALED, ops.convert_to_tensor(SCALED), [0.5, 1.0]], ids=type
)
def test_preprocessing_twice_is_warned_about(images):
    message = "`preprocess` takes .*, which were probably scaled"
    with pytest.warns(UserWarning, match=message) as found:
        keras_vit.preprocess(images)
    assert any(map(is_ours, found))


def test_pixels_of_16_bits_are_warned_about():
    with pytest.warns(UserWarning, match="`preprocess` takes .* Received: values far beyond"):
        keras_vit.preprocess(PHOTOS.astype("uint16") * 257)


def test_preprocessing_of_dark_images():
    for images in (np.zeros(3, "float32"), np.array([0, 1], "uint8"), [0, 1], np.array([])):
        keras_vit.preprocess(images)
    keras_vit.preprocess(PHOTOS.astype("float32") * 1.2 - 20)


def test_preprocessing_in_a_traced_function():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(PHOTOS / 255).map(keras_vit.preprocess)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(dataset)) == 4
