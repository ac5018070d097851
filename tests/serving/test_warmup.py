"""Warm-up requests."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.models import vision_transformer
from keras_vit.serving.export import export
from keras_vit.serving.formats import SIGNATURES
from keras_vit.serving.warmup import MAX_REQUESTS, write_warmup
from tests.fixtures.serving.asking import ARGUMENTS
from tests.fixtures.tiny import TINY

prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")


def exported(directory, sizes):
    model = vision_transformer(**{**TINY, "image_size": (16, 24)})
    return export(model, directory, signatures=SIGNATURES, warmup_batch_sizes=sizes)


def requests_of(path):
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert all(log.WhichOneof("log_type") == "predict_log" for log in logs)
    return [log.predict_log.request for log in logs]


@pytest.mark.slow
def test_every_warm_up_request_is_answered(tmp_path):
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
def test_requests_of_a_fixed_batch_have_its_size(tmp_path):
    options = {"batch_size": 2, "signatures": ("bytes", "float"), "on_bad_image": "flag"}
    path = export(vision_transformer(**TINY), tmp_path, **options)
    requests = requests_of(write_warmup(path, [1, 4], tmp_path.name))
    sizes = [request.inputs.popitem()[1].tensor_shape.dim[0].size for request in requests]
    # A JPEG, a PNG and what is preprocessed.
    assert sizes == [2, 2, 2]


@pytest.mark.slow
def test_more_requests_than_tf_serving_loads_are_refused(tmp_path):
    version = exported(tmp_path, (1,))
    before = write_warmup(version, [1]).read_bytes()
    # Two kinds of files for two signatures, and the two others.
    sizes = [1] * (MAX_REQUESTS // 6 + 1)
    with pytest.raises(ValueError, match="at most 1000 requests"):
        write_warmup(version, sizes)
    assert write_warmup(version, [1]).read_bytes() == before
    assert len(list((version / "assets.extra").iterdir())) == 1
