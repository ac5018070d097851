"""Warm-up requests."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.images.decoding import decode
from keras_vit.models import vision_transformer
from keras_vit.serving.export import export
from keras_vit.serving.formats import SIGNATURES
from keras_vit.serving.warmup import MAX_REQUESTS, photograph, write_warmup
from tests.fixtures.serving.asking import ARGUMENTS
from tests.fixtures.tiny import TINY

prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")


def exported(directory, sizes):
    model = vision_transformer(**{**TINY, "image_size": (16, 24)})
    return export(model, directory, signatures=SIGNATURES, warmup_batch_sizes=sizes)


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("exports"), ())


def requests_of(path):
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert all(log.WhichOneof("log_type") == "predict_log" for log in logs)
    return [log.predict_log.request for log in logs]


@pytest.mark.slow
def test_every_request_is_answered(tmp_path):
    version = exported(tmp_path / "pets", (1, 3))
    signatures = tf.saved_model.load(version).signatures
    seen = []
    for request in requests_of(version / "assets.extra" / "tf_serving_warmup_requests"):
        name = request.model_spec.signature_name
        assert request.model_spec.name == "pets"
        assert set(request.inputs) == {ARGUMENTS[name]}
        inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        (value,) = inputs.values()
        outputs = signatures[name](**{key: tf.constant(one) for key, one in inputs.items()})
        assert all(len(output) == len(value) for output in outputs.values())
        assert all(np.isfinite(o).all() for o in outputs.values() if o.dtype.is_floating)
        kind = value[0][:4] if value.dtype == object else value.dtype.name
        seen.append((name, kind, len(value)))
    kinds = {"serving_default": (b"\xff\xd8\xff\xe0", b"\x89PNG"), "uint8": ("uint8",)}
    kinds |= {"features": kinds["serving_default"], "float": ("float32",)}
    assert sorted(map(repr, seen)) == sorted(
        repr((name, kind, size)) for name in ARGUMENTS for kind in kinds[name] for size in (1, 3)
    )


@pytest.mark.slow
def test_inputs_are_photographs(version):
    inputs = {
        request.model_spec.signature_name: tf.make_ndarray(*request.inputs.values())
        for request in requests_of(write_warmup(version, [2]))
    }
    assert inputs["uint8"].shape == (2, 240, 320, 3)
    np.testing.assert_array_equal(inputs["uint8"][1], photograph())
    assert inputs["float"].shape == (2, 16, 24, 3)
    assert -1 <= inputs["float"].min() < -0.5 < 0.5 < inputs["float"].max() <= 1
    # A PNG keeps each pixel.
    np.testing.assert_array_equal(decode(inputs["serving_default"][0]), photograph())


def test_a_photograph_is_neither_noise_nor_flat():
    picture = photograph().astype("float32")
    steps = np.abs(np.diff(picture, axis=1))
    assert picture.std() > 30
    assert 0 < np.median(steps) < 10 < steps.max()
    np.testing.assert_array_equal(picture, photograph())


@pytest.mark.slow
def test_a_fixed_batch(tmp_path):
    options = {"batch_size": 2, "signatures": ("bytes", "float"), "on_bad_image": "flag"}
    path = export(vision_transformer(**TINY), tmp_path, **options)
    written = (path / "assets.extra" / "tf_serving_warmup_requests").read_bytes()
    requests = requests_of(write_warmup(path, [1, 4], tmp_path.name))
    sizes = [request.inputs.popitem()[1].tensor_shape.dim[0].size for request in requests]
    # A JPEG, a PNG and what is preprocessed.
    assert sizes == [2, 2, 2]
    assert write_warmup(path, [1, 4], tmp_path.name).read_bytes() == written


@pytest.mark.slow
def test_too_many_requests(version):
    before = write_warmup(version, [1]).read_bytes()
    # Two kinds of files for two signatures, and the two others.
    sizes = [1] * (MAX_REQUESTS // 6 + 1)
    with pytest.raises(ValueError, match="at most 1000 requests. Received: 167 sizes"):
        write_warmup(version, sizes)
    assert write_warmup(version, [1]).read_bytes() == before
    assert len(list((version / "assets.extra").iterdir())) == 1


@pytest.mark.parametrize("sizes", [[0], [1.5], ["1"]])
def test_wrong_batch_sizes(sizes, version):
    with pytest.raises(ValueError, match="`warmup_batch_sizes` must be an integer of at least 1"):
        write_warmup(version, sizes)
