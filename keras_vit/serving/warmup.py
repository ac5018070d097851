"""The requests with which TF Serving warms a model up before it answers others."""

import io
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.files import replacing
from keras_vit.data.images.preprocessing import preprocess
from keras_vit.data.images.transforms import resize
from keras_vit.serving.checks import is_count
from keras_vit.serving.protocol.transports import require

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's `kMaxNumRecords`: a model with more is not loaded.
MAX_REQUESTS = 1000
_SIZE = (240, 320)
# Each has a decoder of its own to warm up.
_FILE_FORMATS = ("JPEG", "PNG")


def write_warmup(saved_model_dir, batch_sizes, name="default"):
    """Writes requests for every signature of an export, which TF Serving runs when it loads it.

    The first request of each kind takes several times as long as the later ones. A signature that
    takes encoded images gets a JPEG and a PNG request of each batch size.

    Args:
        saved_model_dir: path of an export's version.
        batch_sizes: how many images the requests have; an export with a fixed batch has its own.
        name: of the model; TF Serving takes no notice of it here.

    Returns:
        The `pathlib.Path` of the file.

    Raises:
        ValueError: if it would be too many requests, there is no export, or a package is missing.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup

    Example:
    >>> from keras_vit.serving.warmup import write_warmup
    >>> model = keras_vit.models.resnet((1,), 32, num_classes=2, image_size=32)
    >>> version = keras_vit.export(model, tmp_path / "pets", warmup_batch_sizes=[])
    >>> write_warmup(version, [1, 8]).name
    'tf_serving_warmup_requests'
    """
    logs = require("tensorflow_serving.apis.prediction_log_pb2")
    path = pathlib.Path(saved_model_dir).expanduser()
    if not len(batch_sizes) or not all(map(is_count, batch_sizes)):
        raise ValueError(
            "`batch_sizes` must be positive integers, at least one. "
            f"Received: batch_sizes={batch_sizes!r}"
        )
    requests = list(_requests(_load(path), batch_sizes))
    if len(requests) > MAX_REQUESTS:
        raise ValueError(
            f"`batch_sizes` must make at most {MAX_REQUESTS} requests. "
            f"Received: {len(batch_sizes)} sizes, which make {len(requests)}"
        )
    (path / WARMUP_FILE).parent.mkdir(exist_ok=True)
    with replacing(path / WARMUP_FILE) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for signature_name, input_name, make in requests:
            log = logs.PredictionLog()
            _fill(log.predict_log.request, name, signature_name, input_name, make())
            writer.write(log.SerializeToString())
    return path / WARMUP_FILE


def _load(path):
    try:
        return tf.saved_model.load(path)
    except OSError as error:
        raise ValueError(
            "`saved_model_dir` must be the directory of an export's version. "
            f"Received: saved_model_dir={str(path)!r}"
        ) from error


def _requests(saved_model, batch_sizes):
    """For each request the name of the signature, that of its input, and what makes the input."""
    for signature_name, signature in sorted(saved_model.signatures.items()):
        # That of encoded images is known of the outputs alone.
        fixed = next(iter(signature.structured_outputs.values())).shape[0]
        for input_name, spec in signature.structured_input_signature[1].items():
            for size in batch_sizes if fixed is None else (fixed,):
                for make in _inputs(spec, size):
                    yield signature_name, input_name, make


def _inputs(spec, batch_size):
    """Functions that make an input, each once: large batches are made one after the other."""
    if spec.dtype == tf.string:
        return [
            lambda file_format=file_format: np.array([_encode(file_format)] * batch_size, object)
            for file_format in _FILE_FORMATS
        ]
    size = [given or usual for given, usual in zip(spec.shape[1:3], _SIZE, strict=True)]
    # What is not in pixels is in the range of the models.
    scale = preprocess if spec.dtype.is_floating else tf.round

    def images():
        image = tf.cast(scale(resize(photograph(), size)), spec.dtype)
        return np.repeat(image.numpy()[None], batch_size, axis=0)

    return [images]


def _encode(file_format):
    buffer = io.BytesIO()
    Image.fromarray(photograph()).save(buffer, file_format)
    return buffer.getvalue()


def photograph():
    """A picture with areas, edges and grain as a photograph has them, and of its size as a file.

    Returns:
        A uint8 array `(240, 320, 3)`, always the same.
    """
    rng = np.random.default_rng(0)
    areas = Image.fromarray(rng.integers(0, 256, (6, 8, 3), "uint8"))
    height, width = _SIZE
    picture = np.asarray(areas.resize((width, height), Image.Resampling.BICUBIC), "float32")
    # A dark round thing before a light background.
    y, x = np.mgrid[:height, :width]
    picture[(y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2] *= 0.4
    return np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype("uint8")


def _fill(request, name, signature_name, input_name, value):
    request.model_spec.name = name
    request.model_spec.signature_name = signature_name
    request.inputs[input_name].CopyFrom(tf.make_tensor_proto(value))
