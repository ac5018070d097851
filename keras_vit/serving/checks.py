"""Checks of the arguments of an export, before anything is written."""

import importlib.util

import keras

from keras_vit.core.arguments import check_choice, check_integer, is_integer
from keras_vit.models.files import check_finite
from keras_vit.models.parts import check_backbone, check_classifier, is_segmenter
from keras_vit.serving.formats import FORMATS
from keras_vit.serving.formats.base import float32_bytes
from keras_vit.serving.formats.saved_model import SIGNATURES, USUAL_SIGNATURES

BAD_IMAGES = ("error", "flag")


def check_export_settings(
    format,
    signatures,
    top_k,
    batch_size,
    on_bad_image,
    warmup_batch_sizes,
    quantize,
    has_calibration,
):
    """Check those arguments of `keras_vit.export` that do not depend on the model.

    Each is checked alone, with the others, and against the backend and the installed packages.

    Returns:
        The `ExportFormat`.
    """
    check_choice("format", format, tuple(FORMATS))
    check_choice("on_bad_image", on_bad_image, BAD_IMAGES)
    row = FORMATS[format]
    is_list = isinstance(signatures, (tuple, list)) and len(signatures) > 0
    if not is_list or set(signatures) - set(SIGNATURES) or len(set(signatures)) < len(signatures):
        raise ValueError(
            f"`signatures` must be some of {', '.join(SIGNATURES)}, each once. "
            f"Received: signatures={signatures!r}"
        )
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
    if not row.has_signatures:
        for name, value, usual in (
            ("signatures", tuple(signatures), USUAL_SIGNATURES),
            ("top_k", top_k, 5),
            ("batch_size", batch_size, None),
            ("on_bad_image", on_bad_image, "error"),
            ("warmup_batch_sizes", tuple(warmup_batch_sizes or ()), ()),
        ):
            if value != usual:
                raise ValueError(
                    f"`{name}` is for {_names(lambda row: row.has_signatures)}: other formats take "
                    "any number of preprocessed images and return logits. "
                    f"Received: {name}={value!r}, format={format!r}"
                )
    check_precision(row, quantize)
    if row.backends and keras.backend.backend() not in row.backends:
        raise ValueError(
            f"`format={row.name!r}` needs the backend {' or '.join(row.backends)}: save the model "
            f"as a .keras file, load it with KERAS_BACKEND={row.backends[0]} and export it there. "
            f"Received: backend={keras.backend.backend()!r}"
        )
    _check_calibration(row, quantize, has_calibration)
    return row


def _check_warmup(batch_size, warmup_batch_sizes):
    check_batch_sizes("warmup_batch_sizes", warmup_batch_sizes)
    if batch_size is not None and set(warmup_batch_sizes) != {batch_size}:
        raise ValueError(
            "`warmup_batch_sizes` must be `batch_size` where that is set. Received: "
            f"warmup_batch_sizes={warmup_batch_sizes!r}, batch_size={batch_size!r}"
        )
    if not has_serving_api():
        raise ValueError(
            "`warmup_batch_sizes` needs tensorflow-serving-api: "
            "pip install 'keras-vit-zoo[serving]'. "
            f"Received: warmup_batch_sizes={warmup_batch_sizes!r}"
        )


def _check_calibration(row, quantize, has_calibration):
    if row.needs_images(quantize) and not has_calibration:
        raise ValueError(
            "`calibration` must be some images like those that will be served, for "
            f"{row.name} in {quantize}. Received: calibration=None"
        )
    if has_calibration and not row.needs_images(quantize):
        needed = (
            f"{other.name} in {name}"
            for other in FORMATS.values()
            for name in other.precisions
            if other.needs_images(name)
        )
        raise ValueError(
            f"`calibration` is for {', '.join(needed)}. "
            f"Received: images for format={row.name!r}, quantize={quantize!r}"
        )


def check_precision(row, quantize):
    """Check that a format has a precision, and that the packages for it are installed."""
    if quantize is not None and quantize not in row.precisions:
        if row.precisions:
            rule = f"must be one of {', '.join(map(repr, row.precisions))} for {row.name}, or None"
        else:
            names = _names(lambda other: other.precisions)
            rule = f"is for {names}: {row.name} computes under the model's dtype policy"
        raise ValueError(f"`quantize` {rule}. Received: quantize={quantize!r}")
    needed = row.packages + (row.precisions[quantize].packages if quantize else ())
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"`format={row.name!r}` needs {', '.join(needed)}: "
            f"pip install 'keras-vit-zoo[{row.name}]'. Received: no {' and no '.join(missing)}"
        )


def check_model(row, model, quantize=None):
    """Check that a model can be written in a format, and return its number of classes."""
    check_backbone(model)
    num_classes = model.output_shape[-1] if is_segmenter(model) else check_classifier(model)
    check_finite(model, dtype=row.precisions[quantize].dtype if quantize else "float32")
    if num_classes < row.min_classes:
        raise ValueError(
            f"`model` must have at least {row.min_classes} classes for format={row.name!r}, whose "
            f"probabilities are a softmax of the logits. Received: a model of {num_classes}"
        )
    if row.max_bytes is not None and float32_bytes(model) > row.max_bytes:
        others = _names(lambda other: other.max_bytes is None, " or ")
        raise ValueError(
            f"`format={row.name!r}` holds models of less than {row.max_bytes / 2**30:.0f} GB: "
            f"choose {others}. "
            f"Received: a model of {float32_bytes(model) / 2**30:.1f} GB in float32"
        )
    return num_classes


def _names(condition, separator=", "):
    return separator.join(row.name for row in FORMATS.values() if condition(row))


def has_serving_api():
    """Whether TF Serving's protocol buffers are installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def check_batch_sizes(argument, sizes):
    """Check that sizes of batches are positive integers, at least one."""
    is_list = isinstance(sizes, (tuple, list)) and len(sizes) > 0
    if not is_list or not all(is_integer(size) and size > 0 for size in sizes):
        raise ValueError(
            f"`{argument}` must be a list of positive integers, at least one. "
            f"Received: {argument}={sizes!r}"
        )
