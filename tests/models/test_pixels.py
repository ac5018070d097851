"""Images that are not scaled to [-1, 1]: refused, or warned about."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.core.pixels import check_pixels
from keras_vit.data.images.image_maker import ImageMaker
from keras_vit.data.images.transforms import evaluation_image
from keras_vit.inspection.distance import attention_distance
from keras_vit.inspection.figures.drawing import draw_predictions
from keras_vit.inspection.figures.masked_patches import draw_masked_patches
from keras_vit.inspection.report import write_report
from keras_vit.layers import PatchEmbedding, StandardizedConv2D
from keras_vit.models import vision_transformer
from keras_vit.serving.quantization import check_images
from tests.fixtures.images import encode
from tests.fixtures.tiny import TINY

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
def test_what_may_be_wrong_is_warned_about(call, images, received, model, tmp_path, caplog):
    call(model, images.astype("float32"), tmp_path)
    (record,) = filter(is_ours, caplog.records)
    assert re.match(f"Images {RULE}.*{received}", record.getMessage())


def test_what_may_be_wrong_is_warned_about_each_time(caplog):
    for _ in range(2):
        check_pixels(PHOTOS / 255)
    assert len(caplog.messages) == 2


def is_ours(record):
    """TensorFlow has a logger of its own."""
    return (record.name, record.levelname) == ("keras_vit", "WARNING")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_right_is_not_warned_about(call, model, tmp_path, caplog):
    call(model, SCALED, tmp_path)
    assert not list(filter(is_ours, caplog.records))


def test_values_that_may_be_right_are_not_warned_about(caplog):
    # Bicubic interpolation goes a little further.
    for images in (SCALED * 1.3, np.zeros_like(SCALED), np.ones_like(SCALED), SCALED[:0]):
        check_pixels(images)
    assert not caplog.messages


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


class Batches(keras.utils.PyDataset):
    """The batches of a list."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return (self.batches[index],)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([np.zeros((2, 16, 16, 3), "int32")], f"{RULE}images of dtype int32"),
        ([{"images": SCALED}], "must be an array .* Received: images of type dict"),
        ([], "must have at least one batch"),
    ],
    ids=["integers", "dictionaries", "none"],
)
def test_batches_of_keras(batches, message, model):
    with pytest.raises(ValueError, match=f"^`images` {message}"):
        keras_vit.features(model, Batches(batches))
    np.testing.assert_allclose(
        keras_vit.features(model, Batches([SCALED[:2], SCALED[2:]])),
        keras_vit.features(model, SCALED),
        rtol=0,
        atol=1e-6,
    )


# What computes of a `tf.data.Dataset`.
OF_DATASETS = {name: CALLS[name] for name in ("features", "maps", "rollout", "distance")}


@pytest.mark.parametrize(
    ("call", "value"),
    [("features", np.nan), ("maps", np.inf), ("rollout", -255), ("distance", np.nan)],
)
def test_all_batches_of_a_dataset_are_checked(call, value, model):
    import tensorflow as tf

    images = SCALED.copy()
    images[3, 5, 5, 0] = value
    with pytest.raises(ValueError, match=f"^`images` {RULE}values from .*{value}"):
        CALLS[call](model, tf.data.Dataset.from_tensor_slices(images).batch(1), None)


def test_the_range_of_a_dataset_is_that_of_all_batches(model, caplog):
    import tensorflow as tf

    # The first batch alone lies in [0, 1].
    images = np.concatenate(
        [np.linspace(0.5, 1, 768, dtype="float32").reshape(1, 16, 16, 3), SCALED]
    )
    for factor, expected in ((1, []), (2.5, [r"beyond \[-1, 1\]"])):
        caplog.clear()
        keras_vit.features(
            model, tf.data.Dataset.from_tensor_slices(images * np.float32(factor)).batch(1)
        )
        messages = [record.getMessage() for record in caplog.records if is_ours(record)]
        assert len(messages) == len(expected)
        assert all(map(re.search, expected, messages))


@pytest.mark.parametrize("call", OF_DATASETS.values(), ids=OF_DATASETS)
@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        (lambda: None, "images of type NoneType"),
        (lambda: [SCALED], "images of type list"),
        (lambda: SCALED[:0], r"images of shape \(0, 16, 16, 3\)"),
        (lambda: SCALED[0], r"images of shape \(16, 16, 3\)"),
        (lambda: SCALED[:, :8], r"images of shape \(4, 8, 16, 3\)"),
        (lambda: dataset(SCALED).batch(2).take(0), "an empty dataset"),
        (lambda: dataset(SCALED), r"images of shape \(16, 16, 3\)"),
        (lambda: dataset({"images": SCALED}).batch(2), "images of type dict"),
    ],
    ids=[
        "none",
        "list",
        "no image",
        "an image",
        "another size",
        "no batch",
        "no batches",
        "dictionaries",
    ],
)
def test_what_is_not_images_is_a_line(call, wrong, received, model):
    with pytest.raises(ValueError, match=f"^`images` must .*Received: {received}$"):
        call(model, wrong(), None)


@pytest.mark.parametrize("call", [keras_vit.features, keras_vit.attention_maps])
@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "3", True])
def test_wrong_batch_sizes(call, batch_size, model):
    with pytest.raises(
        ValueError, match="^`batch_size` must be an integer of at least 1. Received"
    ):
        call(model, SCALED, batch_size=batch_size)


@pytest.mark.parametrize("names", [5, "block_0", [], {"block_0": 1}])
def test_wrong_lists_of_names(names, model):
    with pytest.raises(
        ValueError, match="^`layers` must be a list of names, or None. Received: la"
    ):
        keras_vit.features(model, SCALED, layers=names)
    with pytest.raises(
        ValueError, match="^`blocks` must be a list of names, or None. Received: bl"
    ):
        keras_vit.attention_maps(model, SCALED, blocks=names)


@pytest.mark.parametrize("images", [None, [SCALED], SCALED[:0], SCALED[0], SCALED[:, :8]])
def test_what_is_not_images_is_not_drawn(images, model, tmp_path):
    with pytest.raises(ValueError, match="^`images` must .* Received: images of "):
        draw(model, images, tmp_path)
    assert not list(tmp_path.iterdir())


def dataset(images):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(images)


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


def test_calibration_images(caplog):
    check_images("onnx", "int8", (PHOTOS / 255).astype("float32"), (16, 16))
    assert "values in [0, 1]" in caplog.text
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
    "images",
    [PHOTOS / 255, SCALED, ops.convert_to_tensor(SCALED), [0.5, 1.0], SCALED * 2.5 - 0.3],
    ids=["0 to 1", "-1 to 1", "tensor", "list", "means and deviations"],
)
def test_preprocessing_twice_is_warned_about_each_time(images, caplog):
    for _ in range(2):
        caplog.clear()
        keras_vit.preprocess(images)
        (message,) = caplog.messages
        assert re.match("`preprocess` takes .*, which were probably scaled before$", message)


@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS.astype("uint16") * 257, "values from 0.0 to 65535.0"),
        (np.array([-3, 5]), "values from -3.0 to 5.0"),
        (np.array([-64.0, 319.0]), "values from -64.0 to 319.0"),
        ([0, 300], "values from 0.0 to 300.0"),
        (np.array([0, np.nan]), "values from nan to nan"),
        (np.array([0, np.inf], "float32"), "values from 0.0 to inf"),
        (PHOTOS * 257.0, "values from 0.0 to 65535.0"),
        (ops.convert_to_tensor([0.0, 400.0]), "values from 0.0 to 400.0"),
        (PHOTOS > 100, "images of dtype bool"),
        (ops.convert_to_tensor(PHOTOS > 100), "images of dtype .*bool"),
        (["a"], "images of dtype str"),
        (None, "images of dtype object"),
    ],
)
def test_preprocess_refuses_invalid_values(images, received):
    with pytest.raises(ValueError, match=f"^`images` must be .*255.* Received: {received}"):
        keras_vit.preprocess(images)


def test_preprocess_names_the_range_of_floats():
    keras_vit.preprocess(np.array([-63.75, 318.75]))
    with pytest.raises(ValueError, match=r"floating-point values in \[-63\.75, 318\.75\]\. Rec"):
        keras_vit.preprocess(np.array([-63.76, 0.0]))


def test_preprocessing_of_dark_images(caplog):
    for images in (np.zeros(3, "float32"), np.array([0, 1], "uint8"), [0, 1], np.array([])):
        keras_vit.preprocess(images)
    # Interpolation overshoots.
    for images in (PHOTOS.astype(">f4") * 1.2 - 20, np.array([-1.0, 8.0])):
        keras_vit.preprocess(images)
    assert not caplog.messages


def test_decoded_files_are_not_suspected(caplog):
    """A picture of almost black pixels was not scaled before."""
    pixels = np.ones((4, 4, 3), "uint8")
    evaluation_image(pixels, (4, 4))
    ImageMaker(4).make()(encode(pixels), (0, 0))
    assert not caplog.messages


def test_preprocessing_in_a_traced_function(caplog):
    assert len(list(dataset(PHOTOS / 255).map(keras_vit.preprocess))) == 4
    assert not caplog.messages
    with pytest.raises(ValueError, match="images of dtype bool"):
        dataset(PHOTOS > 100).map(keras_vit.preprocess)
