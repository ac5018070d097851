"""`Predictor`: its columns are those of the model, whatever the images come as."""

import io
import pickle

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images.decoding import decode
from keras_vit.inspection.analyses import attention_distance
from keras_vit.serving import Predictor
from keras_vit.serving import predictor as module
from keras_vit.serving.export import export
from tests.fixtures.commands import run_python
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import NAMES, files, preprocessed, small_classifier

OUTPUTS = (
    *("prediction", "probability", "probabilities", "logits", "features"),
    "attention_distance",
)
pytestmark = pytest.mark.backends("tensorflow", "jax", "torch", reason="all predict")
on_tensorflow = pytest.mark.backends("tensorflow", reason="exports are tested with TensorFlow")
BROKEN = [b"", b"<html>", b"\xff\xd8\xff" + bytes(50), None]


@pytest.fixture(scope="module")
def model():
    model = small_classifier("token")
    model.class_names = NAMES
    return model


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


def column(values):
    """An array of objects, as engines give them."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def assert_equal(found, expected, atol=1e-6):
    for name, values in expected.items():
        if values.dtype == object:
            assert found[name].tolist() == values.tolist()
        else:
            np.testing.assert_allclose(found[name], values, rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
def test_columns_are_those_of_the_model(model, path):
    encoded = files(7)
    images = preprocessed(encoded)
    found = Predictor(path, OUTPUTS, batch_size=3)({"bytes": column(encoded), "id": np.arange(7)})
    logits = model.predict(images, verbose=0)
    probabilities = np.asarray(keras.ops.softmax(logits))
    expected = {
        "id": np.arange(7),
        "prediction": column([NAMES[label] for label in logits.argmax(-1)]),
        "probability": probabilities.max(-1),
        "probabilities": probabilities,
        "logits": logits,
        "features": keras_vit.features(model, images),
        "attention_distance": np.stack([attention_distance(model, one[None]) for one in images]),
        "error": column([None] * 7),
    }
    assert list(found) == list(expected)
    assert_equal(found, expected, atol=2e-5)


def test_images_may_come_as_bytes_pixels_paths_or_structures(path, tmp_path):
    encoded = files(5)
    pixels = [decode(file).numpy() for file in encoded]
    paths = [tmp_path / f"{index}.bin" for index in range(5)]
    for each, file in zip(paths, encoded, strict=True):
        each.write_bytes(file)
    predict = Predictor(path, ["logits"])
    expected = predict({"bytes": column(encoded)})
    structures = [{"bytes": file, "path": None} for file in encoded]
    for name, values in {
        "image": pixels,
        "path": list(map(str, paths)),
        "content": [bytearray(file) for file in encoded],
        "bytes": structures,
        "image ": [{"bytes": None, "path": str(each)} for each in paths],
    }.items():
        assert_equal(predict({name.strip(): column(values)}), expected)
    grey = np.repeat(random_image()[None, ..., :1], 2, axis=0)
    same = np.repeat(grey, 3, axis=-1)
    assert_equal(predict({"image": grey}), predict({"image": same}))
    alpha = np.concatenate([same, grey], axis=-1)
    assert_equal(predict({"image": alpha}), predict({"image": same}))
    assert_equal(predict({"image": grey[..., 0]}), predict({"image": same}))


@pytest.mark.slow
def test_broken_images_are_flagged_and_others_do_not_change(path):
    good = files(4)
    mixed = [each for pair in zip(good, BROKEN, strict=True) for each in pair]
    predict = Predictor(path, OUTPUTS, batch_size=3)
    expected = predict({"bytes": column(good)})
    found = predict({"bytes": column(mixed)})
    assert_equal({name: values[::2] for name, values in found.items()}, expected)
    broken = {name: values[1::2] for name, values in found.items()}
    assert broken["prediction"].tolist() == [None] * 4
    assert all(np.isnan(broken[name]).all() for name in OUTPUTS[1:])
    reasons = broken["error"].tolist()
    assert reasons[1:2] == ["HTML or XML, which is not decoded"] and reasons[3] == "no image"
    assert all("Graph execution" not in reason and len(reason) < 100 for reason in reasons)
    # The shapes do not depend on the images.
    for images in (BROKEN, []):
        alone = predict({"bytes": column(images)})
        for name in OUTPUTS:
            assert alone[name].shape == (len(images), *expected[name].shape[1:]), name
    missing = predict({"path": column(["/no/such.jpg", None, float("nan"), "/"])})
    reasons = ["no such file", "no image", "no image", "a directory"]
    assert missing["error"].tolist() == reasons


def test_a_file_that_cannot_be_read_is_no_broken_image(path, monkeypatch):
    import tensorflow as tf

    def read_file(path):
        raise tf.errors.UnavailableError(None, None, "the server is down")

    monkeypatch.setattr(tf.io, "read_file", read_file)
    with pytest.raises(OSError, match="a.jpg could not be read: the server is down"):
        Predictor(path)({"path": column(["a.jpg"])})


def test_other_columns_may_be_lists(path):
    batch = {"bytes": column(files(2)), "tags": [["a"], ["b", "c"]]}
    assert Predictor(path)(batch)["tags"].tolist() == batch["tags"]


@pytest.mark.slow
@on_tensorflow
@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert", "openvino"])
def test_exports_predict_as_their_model(format, model, path, tmp_path):
    export(model, tmp_path / "pets", format=format, class_names=NAMES)
    batch = {"bytes": column([*files(5), *BROKEN])}
    outputs = ("prediction", "probability", "logits")
    expected = Predictor(path, outputs)(batch)
    assert_equal(Predictor(tmp_path / "pets", outputs, batch_size=2)(batch), expected, atol=1e-4)
    pixels = {"image": random_image()[None]}
    exported = Predictor(tmp_path / "pets", outputs)(pixels)
    assert_equal(exported, Predictor(path, outputs)(pixels), atol=1e-4)


@pytest.mark.slow
def test_photographs_are_turned_upright_and_resized_as_the_model_says(tmp_path):
    model = small_classifier("token", image_size=(16, 16))
    model.image_spec = ImageSpec(
        "bicubic", antialias=True, crop_share=0.875, keeps_aspect_ratio=True
    )
    model.save(tmp_path / "model.keras")
    upright = random_image(20, 30)
    lying = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(upright)).save(lying, "PNG", exif=exif)
    predict = Predictor(tmp_path / "model.keras", ["logits"])
    found = predict({"bytes": column([encode(upright), lying.getvalue()])})["logits"]
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)
    whole = small_classifier("token", image_size=(16, 16))
    whole.save(tmp_path / "whole.keras")
    other = Predictor(tmp_path / "whole.keras", ["logits"])({"bytes": column([encode(upright)])})
    assert np.abs(other["logits"] - found[:1]).max() > 1e-3


@pytest.mark.slow
@on_tensorflow
def test_a_turned_photograph_has_the_pixels_that_its_model_decodes(tmp_path):
    """An export gets it as a PNG, whose pixels must not be those of the faster transform."""
    model = small_classifier("token", image_size=(16, 16))
    model.image_spec = ImageSpec("bicubic", antialias=True)
    model.save(tmp_path / "model.keras")
    export(model, tmp_path / "pets")
    lying, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(random_image(20, 30)).save(lying, "JPEG", quality=95, exif=exif)
    batch = {"bytes": column([lying.getvalue()])}
    expected = Predictor(tmp_path / "model.keras", ["logits"])(batch)
    assert_equal(Predictor(tmp_path / "pets", ["logits"])(batch), expected, atol=1e-5)


@pytest.mark.slow
def test_a_model_of_several_labels(model, tmp_path):
    model = keras.models.clone_model(model)
    keras.utils.set_random_seed(0)
    model.class_names, model.thresholds = NAMES, (1e-6, 0.5, 1 - 1e-6)
    model.save(tmp_path / "model.keras")
    found = Predictor(tmp_path / "model.keras", OUTPUTS[:4])({"bytes": column(files(3))})
    sigmoids = 1 / (1 + np.exp(-found["logits"].astype("float64")))
    np.testing.assert_allclose(found["probabilities"], sigmoids, atol=1e-6)
    for row, names, own in zip(sigmoids, found["prediction"], found["probability"], strict=True):
        above = [i for i in np.argsort(-row) if row[i] > model.thresholds[i]]
        assert names == [NAMES[i] for i in above]
        np.testing.assert_allclose(own, row[above], atol=1e-6)


@pytest.mark.slow
def test_it_is_pickled_as_its_path_and_works_in_a_fresh_interpreter(path, tmp_path):
    predict = Predictor(path, ("prediction", "logits"))
    batch = {"bytes": column(files(2))}
    expected = predict(batch)
    pickled = pickle.dumps(predict)
    assert len(pickled) < 1000
    (tmp_path / "predictor.pkl").write_bytes(pickled)
    (tmp_path / "image.bin").write_bytes(files(2)[1])
    code = """
import pathlib, pickle, sys
folder = pathlib.Path(sys.argv[1])
predict = pickle.loads((folder / "predictor.pkl").read_bytes())
print(*predict({"path": [folder / "image.bin"]})["logits"][0].tolist())
"""
    found = [float(word) for word in run_python(code, tmp_path).split()]
    np.testing.assert_allclose(found, expected["logits"][1], rtol=0, atol=1e-6)


def test_a_process_loads_a_model_once_and_again_when_it_is_saved_again(path, tmp_path, monkeypatch):
    loaded = []

    def load(*args):
        loaded.append(args)
        return args

    monkeypatch.setattr("keras_vit.serving.predictor.load_runner", load)
    module._load.cache_clear()
    copy = tmp_path / "model.keras"
    copy.write_bytes(path.read_bytes())
    first = Predictor(copy)
    assert first.model is first.model is pickle.loads(pickle.dumps(first)).model
    assert len(loaded) == 1
    copy.write_bytes(path.read_bytes())
    assert Predictor(copy).model is not None and len(loaded) == 2
    module._load.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_another_type_to_compute_in(dtype, path):
    batch = {"bytes": column(files(3))}
    exact = Predictor(path, ["probabilities"])(batch)["probabilities"]
    found = Predictor(path, ["probabilities"], dtype=dtype)(batch)["probabilities"]
    assert found.dtype == "float32"
    difference = np.abs(found - exact).max()
    assert 0 < difference < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"outputs": ["labels"]},
            "`outputs` must be one of .*Received: outputs='labels'",
        ),
        ({"outputs": "logits"}, "`outputs` must be one of .*Received: outputs='l'"),
        ({"batch_size": 0}, "`batch_size` must be .*Received: batch_size=0"),
        ({"dtype": "int8"}, "`dtype` must be one of .*float32.* Received: dtype='int8'"),
        ({"image_size": -1}, "`image_size` must be a positive integer"),
    ],
)
def test_arguments_are_checked(options, message, path):
    with pytest.raises(ValueError, match=message):
        Predictor(path, **options)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": np.zeros((1, 0, 4, 3), "uint8")}, r"Received: an array \(0, 4, 3\) of uint8"),
        ({"id": [1]}, "must have one of the columns bytes, content, image, path. Received: id"),
        ({"bytes": [b""], "error": [1]}, "must not have columns .* Received: error"),
        ({"image": np.zeros((1, 4, 4, 3))}, "must be the bytes of a file, or uint8 .*float64"),
        ({"image": np.zeros((1, 4, 4, 2), "uint8")}, r"Received: an array \(4, 4, 2\) of uint8"),
    ],
)
def test_batches_are_checked(batch, message, path):
    with pytest.raises(ValueError, match=message):
        Predictor(path)(batch)


@pytest.mark.slow
@on_tensorflow
def test_an_export_has_what_it_was_exported_with(model, tmp_path):
    export(model, tmp_path / "pets")
    for options, message in (
        ({"outputs": ["features"]}, "no signature of images that returns features"),
        ({"outputs": ["logits", "features"]}, "`outputs` must be those .*it has logits"),
        ({"dtype": "bfloat16"}, "`dtype` must be None for an export.*Received"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictor(tmp_path / "pets", **options)({"bytes": column(files(1))})


@pytest.mark.slow
def test_a_model_without_a_head_has_features(tmp_path):
    model = small_classifier("token")
    keras.Model(model.input, model.get_layer("head").input).save(tmp_path / "model.keras")
    batch = {"bytes": column(files(2))}
    found = Predictor(tmp_path / "model.keras", ["features"])(batch)
    expected = keras_vit.features(model, preprocessed(files(2)))
    np.testing.assert_allclose(found["features"], expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="by its last layer, `head`"):
        Predictor(tmp_path / "model.keras")(batch)
