"""Write the warm-up requests that TF Serving runs when it loads a model."""

import io
import json
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.arguments import check_integer
from keras_vit.core.files import replacing
from keras_vit.data.images.geometry import resize_image
from keras_vit.data.images.scaling import preprocess
from keras_vit.serving.formats import METADATA_FILE, requiring_extra

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's `kMaxNumRecords`: a model with more requests is not loaded.
MAX_REQUESTS = 1000
_SIZE = (240, 320)
# Each format has its own decoder to warm up.
_FILE_FORMATS = ("JPEG", "PNG")


def write_warmup(saved_model_dir, batch_sizes, name="default"):
    """Write warm-up requests for every signature of an export.

    Without warm-up, the first request of each kind takes several times as long as the later ones. A
    signature that takes encoded images gets a JPEG and a PNG request of each batch size. If the
    export has a fixed batch size, `batch_sizes` is ignored. TF Serving ignores `name`.

    Returns:
        The `pathlib.Path` of the file.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    with requiring_extra("serving"):
        from tensorflow_serving.apis import prediction_log_pb2 as logs
    path = pathlib.Path(saved_model_dir).expanduser()
    for size in batch_sizes:
        check_integer("warmup_batch_sizes", size, minimum=1)
    (path / WARMUP_FILE).parent.mkdir(exist_ok=True)
    with replacing(path / WARMUP_FILE) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for number, (signature_name, inputs) in enumerate(_requests(path, batch_sizes)):
            if number == MAX_REQUESTS:
                raise ValueError(
                    f"`warmup_batch_sizes` must make at most {MAX_REQUESTS} requests. "
                    f"Received: {len(batch_sizes)} sizes, which make more"
                )
            log = logs.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = name
            request.model_spec.signature_name = signature_name
            for input_name, value in inputs.items():
                request.inputs[input_name].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString())
    return path / WARMUP_FILE


def _requests(path, batch_sizes):
    """Yield the name of the signature and the dictionary of inputs of each request."""
    metadata = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
    for signature_name, signature in sorted(tf.saved_model.load(path).signatures.items()):
        # If the input is encoded images, only the outputs have the batch size in their shapes.
        fixed = next(iter(signature.structured_outputs.values())).shape[0]
        ((input_name, spec),) = signature.structured_input_signature[1].items()
        for example in _examples(spec, metadata):
            for size in batch_sizes if fixed is None else (fixed,):
                yield signature_name, {input_name: np.repeat(example[None], size, axis=0)}


def _examples(spec, metadata):
    """Return example images in the form that an input takes: encoded, preprocessed or uint8."""
    channels = metadata["image_spec"]["channels"]
    pixels = photograph()[..., np.arange(channels) % 3]
    if spec.dtype == tf.string:
        # JPEGs cannot have four channels.
        return [_encoded(name, pixels.squeeze()) for name in _FILE_FORMATS[channels // 4 :]]
    if spec.dtype.is_floating:
        return [preprocess(resize_image(pixels, metadata["image_size"])).numpy()]
    return [pixels]


def _encoded(file_format, pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, file_format)
    return np.array(buffer.getvalue(), object)


def photograph():
    """Make a picture with the areas, edges, grain and file size of a photograph."""
    rng = np.random.default_rng(0)
    areas = Image.fromarray(rng.integers(0, 256, (6, 8, 3), "uint8"))
    height, width = _SIZE
    picture = np.asarray(areas.resize((width, height), Image.Resampling.BICUBIC), "float32")
    # A dark disk in front of a light background.
    y, x = np.mgrid[:height, :width]
    picture[(y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2] *= 0.4
    return np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype("uint8")
