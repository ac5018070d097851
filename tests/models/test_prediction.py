"""Images for a model: arrays and datasets, their shape, batches and scale."""

import pathlib
import re

import keras
import matplotlib.figure
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection.distance import attention_distance
from keras_vit.inspection.figures.drawing import draw_predictions
from keras_vit.inspection.figures.masked_patches import draw_masked_patches
from keras_vit.inspection.report import write_report
from keras_vit.models import vision_transformer
from tests.fixtures.tiny import TINY

RULE = r"must be scaled to \[-1, 1\], as `keras_vit.preprocess` does\. Received: "
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


@pytest.fixture(autouse=True)
def without_rendering(monkeypatch):
    """Save figures as empty files: rendering them takes seconds, and is tested elsewhere."""

    def savefig(figure, path, **options):
        pathlib.Path(path).touch()

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", savefig)


@pytest.fixture(scope="module")
def model():
    return vision_transformer(**TINY)


def draw(model, images, path):
    draw_predictions(model, images, np.zeros(4, int), ["a", "b", "c"], path / "picture.png")


def dataset(images):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(images)


def check_features(model, batches):
    """The batches of the scaled images have their features."""
    features = keras_vit.features(model, batches)
    np.testing.assert_allclose(features, keras_vit.features(model, SCALED), rtol=0, atol=1e-6)


def warnings(caplog):
    """The package's warnings: TensorFlow has a logger of its own."""
    ours = ("keras_vit", "WARNING")
    return [r.getMessage() for r in caplog.records if (r.name, r.levelname) == ours]


CALLS = {
    "features": lambda model, images, _: keras_vit.features(model, images),
    "maps": lambda model, images, _: keras_vit.attention_maps(model, images),
    "rollout": lambda model, images, _: keras_vit.attention_rollout(model, images),
    "distance": lambda model, images, _: attention_distance(model, images),
    "report": lambda model, images, path: write_report(model, images, path),
    "predictions": draw,
}
# What computes of a `tf.data.Dataset`.
OF_DATASETS = {name: CALLS[name] for name in ("features", "maps", "rollout", "distance")}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS, "images of dtype uint8"),
        (PHOTOS.astype("int32"), "images of dtype int32"),
        (PHOTOS > 100, "images of dtype bool"),
        (PHOTOS.astype("float32"), r"values from 0\.0 to 255\.0"),
        (np.where(PHOTOS > 254, np.nan, SCALED), "values from nan to nan: some are NaN"),
        (np.where(PHOTOS > 254, np.inf, SCALED), "to inf"),
    ],
    ids=["uint8", "int32", "bool", "float", "nan", "inf"],
)
def test_pixels_are_refused(call, images, received, model, tmp_path):
    with pytest.raises(ValueError, match=f"`images` {RULE}.*{received}"):
        call(model, images, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (SCALED, []),
        (PHOTOS / 255, [r"values in \[0, 1\]"]),
        ((PHOTOS / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], [r"beyond \[-1, 1\]"]),
    ],
    ids=["right", "0 to 1", "means and deviations"],
)
def test_what_may_be_wrong_is_warned_about(call, images, expected, model, tmp_path, caplog):
    call(model, images.astype("float32"), tmp_path)
    for message, received in zip(warnings(caplog), expected, strict=True):
        assert re.match(f"Images {RULE}.*{received}", message)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (PHOTOS, "images of dtype uint8"),
        # As `keras.utils.image_dataset_from_directory` makes them.
        (PHOTOS.astype("float32"), r"values from 0\.0 to 255\.0"),
    ],
    ids=["uint8", "float"],
)
def test_pixels_of_datasets_are_refused(images, message, model):
    labels = np.zeros(4, "int64")
    for arrays in (images, (images, labels)):
        for call in (keras_vit.features, keras_vit.attention_maps):
            with pytest.raises(ValueError, match=f"{RULE}.*{message}"):
                call(model, dataset(arrays).batch(2))


@pytest.mark.slow
def test_labels_of_a_dataset_are_left_out(model):
    check_features(model, dataset((SCALED, np.zeros(4))).batch(2))


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
        pytest.param(
            [{"images": SCALED}],
            "must be an array .* Received: images of type dict",
            marks=pytest.mark.slow,
        ),
        pytest.param([], "must have at least one batch", marks=pytest.mark.slow),
    ],
    ids=["integers", "dictionaries", "none"],
)
def test_batches_of_keras(batches, message, model):
    with pytest.raises(ValueError, match=f"^`images` {message}"):
        keras_vit.features(model, Batches(batches))
    check_features(model, Batches([SCALED[:2], SCALED[2:]]))


@pytest.mark.parametrize(
    ("call", "value"),
    [("features", np.nan), ("maps", np.inf), ("rollout", -255), ("distance", np.nan)],
)
def test_all_batches_of_a_dataset_are_checked(call, value, model):
    images = SCALED.copy()
    images[3, 5, 5, 0] = value
    with pytest.raises(ValueError, match=f"^`images` {RULE}values from .*{value}"):
        CALLS[call](model, dataset(images).batch(1), None)


@pytest.mark.slow
def test_the_range_of_a_dataset_is_that_of_all_batches(model, caplog):
    # The first batch alone lies in [0, 1].
    first = np.linspace(0.5, 1, 768, dtype="float32").reshape(1, 16, 16, 3)
    images = np.concatenate([first, SCALED])
    for factor, expected in ((1, []), (2.5, [r"beyond \[-1, 1\]"])):
        caplog.clear()
        keras_vit.features(model, dataset(images * np.float32(factor)).batch(1))
        for message, received in zip(warnings(caplog), expected, strict=True):
            assert re.search(received, message)


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
)
def test_what_is_not_images_is_a_line(call, wrong, received, model):
    with pytest.raises(ValueError, match=f"^`images` must .*Received: {received}$"):
        call(model, wrong(), None)


@pytest.mark.parametrize("call", [keras_vit.features, keras_vit.attention_maps])
@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "3", True])
def test_wrong_batch_sizes(call, batch_size, model):
    with pytest.raises(ValueError, match="^`batch_size` must be an integer of at least 1. Rec"):
        call(model, SCALED, batch_size=batch_size)


@pytest.mark.parametrize("names", [5, "block_0", [], {"block_0": 1}])
def test_wrong_lists_of_names(names, model):
    with pytest.raises(ValueError, match="^`layers` must be a list of names, or None. Rec.*: la"):
        keras_vit.features(model, SCALED, layers=names)
    with pytest.raises(ValueError, match="^`blocks` must be a list of names, or None. Rec.*: bl"):
        keras_vit.attention_maps(model, SCALED, blocks=names)


@pytest.mark.parametrize("call", ["predictions", "report"])
@pytest.mark.parametrize("images", [None, [SCALED], SCALED[:0], SCALED[0], SCALED[:, :8]])
def test_what_is_not_images_is_not_drawn(call, images, model, tmp_path):
    with pytest.raises(ValueError, match="^`images` must .* Received: images of "):
        CALLS[call](model, images, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_that_scales_its_inputs_takes_pixels(model):
    images = keras.Input((16, 16, 3))
    x = keras.layers.Rescaling(1 / 127.5, -1)(images)
    # Its own inputs are the scaled images.
    for layer in model.layers[1:-1]:
        x = layer(x)
    scaling = keras.Model(images, x)
    features = keras_vit.features(scaling, PHOTOS.astype("float32"))
    np.testing.assert_allclose(features, keras_vit.features(model, SCALED), rtol=0, atol=1e-5)


def test_masked_patches(tmp_path):
    inputs = {"images": PHOTOS, "corruption": np.zeros((4, 16), "int32")}
    predictor = vision_transformer(**{**TINY, "pooling": None, "num_classes": 0})
    batch = inputs, np.zeros((4, 16), "int32"), np.ones((4, 16))
    with pytest.raises(ValueError, match=f"`images` {RULE}images of dtype uint8"):
        draw_masked_patches(predictor, batch, tmp_path / "x.png")
