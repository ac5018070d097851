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
from keras_vit.serving.formats import FORMATS
from tests.fixtures.commands import run_python
from tests.fixtures.images import random_image
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


def test_other_columns_may_be_lists(path):
    batch = {"bytes": column(files(2)), "tags": [["a"], ["b", "c"]]}
    assert Predictor(path, ["logits"])(batch)["tags"].tolist() == batch["tags"]


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
    assert None not in broken["error"].tolist()
    # The shapes do not depend on the images.
    for images in (BROKEN, []):
        alone = predict({"bytes": column(images)})
        for name in OUTPUTS:
            assert alone[name].shape == (len(images), *expected[name].shape[1:]), name
    missing = predict({"path": column(["/no/such.jpg", None, float("nan"), "/"])})
    assert None not in missing["error"].tolist()


def test_a_file_that_cannot_be_read_is_no_broken_image(path, monkeypatch):
    import tensorflow as tf

    def read_file(path):
        raise tf.errors.UnavailableError(None, None, "the server is down")

    monkeypatch.setattr(tf.io, "read_file", read_file)
    with pytest.raises(OSError, match="could not be read"):
        Predictor(path)({"path": column(["a.jpg"])})


@pytest.mark.slow
@on_tensorflow
@pytest.mark.parametrize("format", FORMATS)
def test_exports_predict_as_their_model(format, model, path, tmp_path):
    export(model, tmp_path / "pets", format=format, class_names=NAMES)
    batch = {"bytes": column([*files(5), *BROKEN])}
    outputs = ("prediction", "probability", "logits")
    expected = Predictor(path, outputs)(batch)
    assert_equal(Predictor(tmp_path / "pets", outputs, batch_size=2)(batch), expected, atol=1e-4)
    pixels = {"image": random_image()[None]}
    expected = Predictor(path, outputs)(pixels)
    assert_equal(Predictor(tmp_path / "pets", outputs)(pixels), expected, atol=1e-4)


@pytest.mark.slow
def test_it_is_pickled_as_its_path_and_works_in_a_fresh_interpreter(path, tmp_path):
    predict = Predictor(path, ["logits"])
    (expected,) = predict({"bytes": column(files(1))})["logits"]
    pickled = pickle.dumps(predict)
    assert len(pickled) < 1000
    (tmp_path / "predictor.pkl").write_bytes(pickled)
    (tmp_path / "image.bin").write_bytes(files(1)[0])
    code = """
import pathlib, pickle, sys
folder = pathlib.Path(sys.argv[1])
predict = pickle.loads((folder / "predictor.pkl").read_bytes())
print(*predict({"path": [folder / "image.bin"]})["logits"][0].tolist())
"""
    found = [float(word) for word in run_python(code, tmp_path).split()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@on_tensorflow
def test_a_turned_photograph_is_made_upright_as_its_model_decodes(tmp_path):
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
    upright = decode(lying.getvalue(), ImageSpec(antialias=True)).numpy()
    turned = {"image": np.rot90(upright, -1)[None]}
    assert_equal(Predictor(tmp_path / "model.keras", ["logits"])(turned), expected)


@pytest.mark.slow
@on_tensorflow
def test_a_model_of_several_labels_and_its_export(tmp_path):
    model = small_classifier("token")
    model.class_names, model.thresholds = NAMES, (1e-6, 0.5, 1 - 1e-6)
    model.save(tmp_path / "model.keras")
    batch = {"bytes": column(files(3))}
    found = Predictor(tmp_path / "model.keras", OUTPUTS[:4])(batch)
    sigmoids = 1 / (1 + np.exp(-found["logits"].astype("float64")))
    np.testing.assert_allclose(found["probabilities"], sigmoids, atol=1e-6)
    for row, names, own in zip(sigmoids, found["prediction"], found["probability"], strict=True):
        above = [i for i in np.argsort(-row) if row[i] > model.thresholds[i]]
        assert names == [NAMES[i] for i in above]
        np.testing.assert_allclose(own, row[above], atol=1e-6)
    exported = Predictor(export(model, tmp_path / "pets", format="onnx"))(batch)
    assert exported["prediction"].tolist() == found["prediction"].tolist()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"bytes": [b""], "error": [1]}, "must not have columns"),
        ({"image": np.zeros((1, 4, 4, 3))}, "of uint8 for photographs"),
        ({"image": np.zeros((1, 4, 4, 2), "uint8")}, r"an array \(4, 4, 2\)"),
        ({"image": np.zeros((1, 0, 4, 3), "uint8")}, r"an array \(0, 4, 3\)"),
    ],
)
def test_batches_that_cannot_be_predicted_are_refused(batch, message, path):
    with pytest.raises(ValueError, match=message):
        Predictor(path)(batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_classes", "weight", "message"),
    [
        # Logits that overflow.
        (3, 3e38, "finite logits"),
        # The softmax of one logit is always 1.
        (1, 1, "at least two classes"),
    ],
)
def test_models_whose_answers_mean_nothing_are_refused(num_classes, weight, message, tmp_path):
    model = small_classifier("token", num_classes=num_classes)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.full(kernel.shape, weight))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=message):
        Predictor(tmp_path / "model.keras")({"image": random_image()[None]})


@pytest.mark.slow
def test_classes_without_names_are_numbers(tmp_path):
    small_classifier("token").save(tmp_path / "model.keras")
    outputs = ("prediction", "logits")
    found = Predictor(tmp_path / "model.keras", outputs)({"bytes": column(files(3))})
    assert found["prediction"].tolist() == list(map(str, found["logits"].argmax(-1)))


@pytest.mark.slow
@on_tensorflow
def test_an_export_has_what_it_was_exported_with(model, tmp_path):
    export(model, tmp_path / "pets", format="onnx")
    for options in ({"outputs": ["features"]}, {"dtype": "bfloat16"}):
        (name,) = options
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            Predictor(tmp_path / "pets", **options)({"bytes": column(files(1))})


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
def test_another_type_to_compute_in_is_close(dtype, path):
    batch = {"bytes": column(files(3))}
    exact = Predictor(path, ["probabilities"])(batch)["probabilities"]
    found = Predictor(path, ["probabilities"], dtype=dtype)(batch)["probabilities"]
    assert found.dtype == "float32"
    difference = np.abs(found - exact).max()
    assert 0 < difference < 0.02
