"""What an export is asked for, checked before anything is written."""

import importlib.util

import keras

from keras_vit.core.arguments import check_integer, is_integer
from keras_vit.core.class_names import check_class_names
from keras_vit.serving.quantization import NEEDS_IMAGES, check_choice

FORMATS = ("saved_model", "onnx", "litert", "openvino")
SIGNATURES = ("bytes", "uint8", "float", "features")
USUAL_SIGNATURES = ("bytes", "uint8", "float")
BAD_IMAGES = ("error", "flag")
# TensorFlow, which comes with the package, writes SavedModels and LiteRT.
PACKAGES = {"onnx": ("onnx", "onnxruntime", "tf2onnx"), "openvino": ("openvino",)}
QUANTIZING_PACKAGES = {("openvino", "int8"): ("nncf",)}


def class_names_or_numbers(class_names, num_classes):
    """The names of a model's classes, their numbers where there are no names.

    Raises:
        ValueError: as `check_class_names`.
    """
    if class_names is None:
        return [str(number) for number in range(num_classes)]
    return list(check_class_names(class_names, num_classes=num_classes))


def check_settings(
    format, signatures, top_k, batch_size, on_bad_image, warmup_batch_sizes, quantize
):
    """Raises `ValueError` unless these arguments of `export` can be used, here and together."""
    for name, value, choices in (
        ("format", format, FORMATS),
        ("on_bad_image", on_bad_image, BAD_IMAGES),
    ):
        if value not in choices:
            raise ValueError(
                f"`{name}` must be one of {', '.join(choices)}. Received: {name}={value!r}"
            )
    _check_signatures(signatures)
    check_integer("top_k", top_k, minimum=1)
    if batch_size is not None:
        check_integer("batch_size", batch_size, minimum=1)
    if on_bad_image == "flag" and not {"bytes", "features"} & set(signatures):
        raise ValueError(
            "`on_bad_image` is for the signatures that take encoded images, bytes and features. "
            f"Received: on_bad_image='flag', signatures={signatures!r}"
        )
    if warmup_batch_sizes:
        _check_warmup(batch_size, warmup_batch_sizes)
    if format == "saved_model":
        _check_saved_model(quantize)
        return
    _check_other_format(
        format,
        ("signatures", tuple(signatures), USUAL_SIGNATURES),
        ("top_k", top_k, 5),
        ("batch_size", batch_size, None),
        ("on_bad_image", on_bad_image, "error"),
        ("warmup_batch_sizes", tuple(warmup_batch_sizes or ()), ()),
    )
    check_choice(format, quantize)
    check_packages(format, quantize)


def _check_signatures(signatures):
    is_list = isinstance(signatures, (tuple, list)) and len(signatures) > 0
    if not is_list or set(signatures) - set(SIGNATURES) or len(set(signatures)) < len(signatures):
        raise ValueError(
            f"`signatures` must be some of {', '.join(SIGNATURES)}, each once. "
            f"Received: signatures={signatures!r}"
        )


def _check_warmup(batch_size, warmup_batch_sizes):
    is_list = isinstance(warmup_batch_sizes, (tuple, list))
    if not is_list or not all(map(is_count, warmup_batch_sizes)):
        raise ValueError(
            "`warmup_batch_sizes` must be a list of positive integers. "
            f"Received: warmup_batch_sizes={warmup_batch_sizes!r}"
        )
    if batch_size is not None and set(warmup_batch_sizes) != {batch_size}:
        raise ValueError(
            "`warmup_batch_sizes` must be `batch_size` where that is set. Received: "
            f"warmup_batch_sizes={warmup_batch_sizes!r}, batch_size={batch_size!r}"
        )
    if not has_serving_api():
        raise ValueError(
            "`warmup_batch_sizes` needs tensorflow-serving-api: pip install 'keras-vit[serving]'. "
            f"Received: warmup_batch_sizes={warmup_batch_sizes!r}"
        )


def _check_saved_model(quantize):
    if quantize is not None:
        raise ValueError(
            "`quantize` is for the formats onnx, litert and openvino: a SavedModel computes by the "
            f"model's dtype policy. Received: quantize={quantize!r}"
        )
    if keras.backend.backend() not in ("tensorflow", "jax"):
        raise ValueError(
            "A SavedModel needs the TensorFlow or JAX backend: save the model as a .keras file, "
            "load it with KERAS_BACKEND=tensorflow and export it there. "
            f"Received: backend={keras.backend.backend()!r}"
        )


def _check_other_format(format, *options):
    for name, value, usual in options:
        if value != usual:
            raise ValueError(
                f"`{name}` is for SavedModels: other formats take any number of preprocessed "
                f"images and return logits. Received: {name}={value!r}, format={format!r}"
            )


def check_calibration(format, quantize, is_given):
    """Raises `ValueError` unless there are calibration images just where they are needed."""
    if (format, quantize) in NEEDS_IMAGES and not is_given:
        raise ValueError(
            f"`calibration` must be some images like those that will be served, for {format} in "
            f"{quantize}. Received: calibration=None"
        )
    if (format, quantize) not in NEEDS_IMAGES and is_given:
        needed = ", ".join(" in ".join(pair) for pair in sorted(NEEDS_IMAGES))
        raise ValueError(
            f"`calibration` is for {needed}. "
            f"Received: images for format={format!r}, quantize={quantize!r}"
        )


def check_packages(format, quantize):
    """Raises `ValueError` if a package is missing that writes a format."""
    needed = PACKAGES.get(format, ()) + QUANTIZING_PACKAGES.get((format, quantize), ())
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"`format={format!r}` needs {', '.join(needed)}: "
            f"pip install 'keras-vit[{format}]'. Received: no {' and no '.join(missing)}"
        )


def has_serving_api():
    """Whether TF Serving's protocol buffers are installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def is_count(value):
    """Whether it is a positive integer."""
    return is_integer(value) and value > 0
