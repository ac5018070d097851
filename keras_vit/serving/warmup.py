"""Warm-up requests, which TF Serving makes when it loads a model."""

import functools
import io
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.files import replacing
from keras_vit.data.images.scaling import preprocess
from keras_vit.data.images.transforms import resize
from keras_vit.serving.checks import check_batch_sizes
from keras_vit.serving.loaded import input_size
from keras_vit.serving.protocol.transports import require

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's `kMaxNumRecords`: a model with more requests is not loaded.
MAX_REQUESTS = 1000
_SIZE = (240, 320)
# Each has its own decoder, which is warmed up too.
_FILE_FORMATS = ("JPEG", "PNG")


def write_warmup(saved_model_dir, batch_sizes, name="default"):
    """Write warm-up requests for every signature of an export.

    The first request of each kind takes several times as long as the later ones. A signature that
    takes encoded images gets a JPEG and a PNG request of each batch size. The sizes are ignored if
    the export has a fixed batch size, and TF Serving ignores the name of the model.

    Returns:
        The `pathlib.Path` of the file.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    logs = require("tensorflow_serving.apis.prediction_log_pb2")
    path = pathlib.Path(saved_model_dir).expanduser()
    check_batch_sizes("batch_sizes", batch_sizes)
    requests = list(_requests(path, batch_sizes))
    if len(requests) > MAX_REQUESTS:
        raise ValueError(
            f"`batch_sizes` must make at most {MAX_REQUESTS} requests. "
            f"Received: {len(batch_sizes)} sizes, which make {len(requests)}"
        )
    (path / WARMUP_FILE).parent.mkdir(exist_ok=True)
    with replacing(path / WARMUP_FILE) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for signature_name, input_name, make in requests:
            log = logs.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = name
            request.model_spec.signature_name = signature_name
            request.inputs[input_name].CopyFrom(tf.make_tensor_proto(make()))
            writer.write(log.SerializeToString())
    return path / WARMUP_FILE


def _requests(path, batch_sizes):
    """Yield for each request the names of signature and input, and a function for the input."""
    try:
        loaded = tf.saved_model.load(path)
    except OSError as error:
        raise ValueError(
            "`saved_model_dir` must be the directory of an export's version. "
            f"Received: saved_model_dir={str(path)!r}"
        ) from error
    for signature_name, signature in sorted(loaded.signatures.items()):
        # The batch size of encoded images is recorded in the outputs only.
        fixed = next(iter(signature.structured_outputs.values())).shape[0]
        for input_name, spec in signature.structured_input_signature[1].items():
            for size in batch_sizes if fixed is None else (fixed,):
                for make in _inputs(path, spec, size):
                    yield signature_name, input_name, make


def _inputs(path, spec, batch_size):
    """Return functions that make an input, so that only one large batch exists at a time."""
    if spec.dtype == tf.string:
        return [functools.partial(_encoded, name, batch_size) for name in _FILE_FORMATS]
    # Floats are preprocessed images, integers are pixels of any size.
    size = input_size(path, spec.shape[1:3]) if spec.dtype.is_floating else _SIZE
    scale = preprocess if spec.dtype.is_floating else tf.round

    def images():
        image = tf.cast(scale(resize(photograph(), size)), spec.dtype)
        return np.repeat(image.numpy()[None], batch_size, axis=0)

    return [images]


def _encoded(file_format, count):
    buffer = io.BytesIO()
    Image.fromarray(photograph()).save(buffer, file_format)
    return np.array([buffer.getvalue()] * count, object)


def photograph():
    """Make a picture that resembles a photograph in its areas, edges, grain and file size."""
    rng = np.random.default_rng(0)
    areas = Image.fromarray(rng.integers(0, 256, (6, 8, 3), "uint8"))
    height, width = _SIZE
    picture = np.asarray(areas.resize((width, height), Image.Resampling.BICUBIC), "float32")
    # A dark disk in front of a light background.
    y, x = np.mgrid[:height, :width]
    picture[(y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2] *= 0.4
    return np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype("uint8")
