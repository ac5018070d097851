"""What an export is asked for, checked before anything is written."""

import importlib.util
import numbers

import keras

from keras_vit.models.surgery import check_classifier
from keras_vit.serving.quantization import NEEDS_IMAGES

FORMATS = ("saved_model", "onnx", "litert", "openvino")
SIGNATURES = ("bytes", "uint8", "float", "features")
BAD_IMAGES = ("error", "flag")


def check_model(model, class_names, format):
    """The names of a model's classes, their numbers where there are no names.

    Raises:
        ValueError: if it is no classifier that can be exported, or the names are not its classes'.
    """
    if format == "saved_model" and keras.backend.backend() not in ("tensorflow", "jax"):
        raise ValueError(
            "A SavedModel needs the TensorFlow or JAX backend: save the model as a .keras file, "
            "load it with KERAS_BACKEND=tensorflow and export it there. "
            f"Received: backend={keras.backend.backend()!r}"
        )
    num_classes = check_classifier(model)
    if class_names is None:
        return [str(number) for number in range(num_classes)]
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(
            f"`class_names` must be a list that names the model's {num_classes} classes. "
            f"Received: class_names={class_names!r}"
        )
    if any("\n" in name for name in class_names):
        raise ValueError(
            f"`class_names` must be of one line each. Received: class_names={class_names!r}"
        )
    return list(class_names)


def check_settings(
    format, signatures, top_k, batch_size, on_bad_image, warmup_batch_sizes, quantize
):
    """Raises `ValueError` unless these arguments of `export` can be used."""
    for name, value, choices in (
        ("format", format, FORMATS),
        ("on_bad_image", on_bad_image, BAD_IMAGES),
    ):
        if value not in choices:
            raise ValueError(
                f"`{name}` must be one of {', '.join(choices)}. Received: {name}={value!r}"
            )
    is_list = isinstance(signatures, (tuple, list)) and len(signatures) > 0
    if not is_list or set(signatures) - set(SIGNATURES) or len(set(signatures)) < len(signatures):
        raise ValueError(
            f"`signatures` must be some of {', '.join(SIGNATURES)}, each once. "
            f"Received: signatures={signatures!r}"
        )
    if not _is_count(top_k) or not (batch_size is None or _is_count(batch_size)):
        raise ValueError(
            "`top_k` and `batch_size` must be positive integers, the latter may be `None`. "
            f"Received: top_k={top_k!r}, batch_size={batch_size!r}"
        )
    if format == "saved_model" and quantize is not None:
        raise ValueError(
            "`quantize` must be None for a SavedModel: build or load the model with "
            "`dtype='mixed_bfloat16'`, or choose another format. "
            f"Received: quantize={quantize!r}"
        )
    if format != "saved_model" and batch_size is not None:
        raise ValueError(
            "`batch_size` must be None for formats other than SavedModel, which take any number "
            f"of images. Received: format={format!r}, batch_size={batch_size!r}"
        )
    _check_warmup(format, batch_size, warmup_batch_sizes)


def _check_warmup(format, batch_size, warmup_batch_sizes):
    if warmup_batch_sizes is None:
        return
    is_list = isinstance(warmup_batch_sizes, (tuple, list))
    fits = is_list and all(
        _is_count(size) and batch_size in (None, size) for size in warmup_batch_sizes
    )
    if not fits or (warmup_batch_sizes and format != "saved_model"):
        raise ValueError(
            "`warmup_batch_sizes` must be positive integers, of a SavedModel, and where "
            "`batch_size` is set that alone. "
            f"Received: warmup_batch_sizes={warmup_batch_sizes!r}, batch_size={batch_size!r}"
        )
    if warmup_batch_sizes and not has_serving_api():
        raise ValueError(
            "`warmup_batch_sizes` needs tensorflow-serving-api: pip install 'keras-vit[serving]'. "
            f"Received: warmup_batch_sizes={warmup_batch_sizes!r}"
        )


def check_calibration(format, quantize, calibration):
    """Raises `ValueError` if images are missing from which int8 learns its ranges."""
    if (format, quantize) in NEEDS_IMAGES and calibration is None:
        raise ValueError(
            f"`calibration` must be some images like those that will be served, for {format} in "
            f"{quantize}. Received: calibration=None"
        )


def has_serving_api():
    """Whether TF Serving's protocol buffers are installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def _is_count(value):
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_whole and value > 0
