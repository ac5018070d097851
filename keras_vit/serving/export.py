"""A model and its preprocessing, for TF Serving and other servers."""

import contextlib
import errno
import json
import os

import keras

import keras_vit
from keras_vit.models import resize
from keras_vit.models.describe import describe
from keras_vit.models.head import has_zero_head, warn_of_zero_head
from keras_vit.models.options import DROPOUT_OPTIONS, changed_options, match_variant
from keras_vit.models.surgery import check_classifier
from keras_vit.models.weights import check_finite
from keras_vit.serving import labels
from keras_vit.serving.checks import (
    USUAL_SIGNATURES,
    check_calibration,
    check_settings,
    class_names_or_numbers,
    has_serving_api,
)
from keras_vit.serving.quantization import check_images, warn_of_calibration
from keras_vit.serving.versions import new_version


def export(
    model,
    directory,
    version="auto",
    format="saved_model",
    signatures=USUAL_SIGNATURES,
    top_k=5,
    class_names=None,
    batch_size=None,
    image_size=None,
    on_bad_image="error",
    warmup_batch_sizes=None,
    quantize=None,
    calibration=None,
    facts=None,
):
    """Writes a model for serving, under `directory/<version>/`.

    A SavedModel has these signatures, the first of which is `serving_default`:

    - `"bytes"` takes `image_bytes`, strings `(batch,)`: encoded images (JPEG, PNG, GIF, BMP, still
      WebP) of any size, which are decoded, resized and scaled in the graph as in evaluation.
    - `"uint8"` takes `images`, uint8 `(batch, height, width, 3)` of any size.
    - `"float"` takes preprocessed `images`, float32 `(batch, height, width, 3)` in [-1, 1].
    - `"features"` takes `image_bytes` and returns `features`, float32 `(batch, width)`.

    The first three return `logits` and `probabilities`, float32 `(batch, num_classes)`, and of the
    most likely classes `top_k_classes`, int32, `top_k_labels`, strings, and `top_k_probabilities`,
    float32, all `(batch, top_k)`. Other formats take preprocessed `images` and return `logits`.

    Beside it stand `model.json`, which says what it is, and the names of the classes; in the
    directory settings for TF Serving, where there are none yet. A version is written beside its
    place and renamed: a server never sees half a model.

    Args:
        model: a classifier of this package that returns logits; for a SavedModel on the TensorFlow
            or JAX backend.
        directory: path of the model's directory, which holds its versions; its name is the model's.
        version: a positive integer; `"auto"` for the one after the last.
        format: `"saved_model"`, `"onnx"`, `"litert"` or `"openvino"`.
        signatures: of a SavedModel; this and the options of requests below are for it alone.
        top_k: how many classes are named, at most.
        class_names: names of the classes; `None` for their numbers.
        batch_size: images in a request to a SavedModel; `None` for any.
        image_size: int or `(height, width)` to resize the model to; `None` for its own.
        on_bad_image: what an image that cannot be decoded is: an `"error"`, whose message has its
            index in the batch; or `"flag"`, then the others are answered, its outputs are zeros,
            and `is_bad`, bool `(batch,)`, tells which.
        warmup_batch_sizes: sizes of the requests that TF Serving makes when it loads the model; by
            default 1 where `tensorflow-serving-api` is installed, else none.
        quantize: `"int8"`, `"float16"` or `"bfloat16"`, where the format has it; `None` for not.
        calibration: for int8 of ONNX and OpenVINO, float32 `(images, height, width, 3)`, some
            preprocessed images like those that will be served.
        facts: dictionary of other facts for `model.json`.

    Returns:
        The `pathlib.Path` of the version.

    Raises:
        ValueError: if an argument is out of range, the version exists, the directory cannot be
            written, the model is not a classifier of RGB images or has weights that are not
            finite, the backend cannot export, or a package is missing.
        OSError: if the disk is full.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> path = keras_vit.export(model, tmp_path / "pets", class_names=["cat", "dog"])
    >>> path.name, (path / "assets" / "labels.txt").read_text().split()
    ('1', ['cat', 'dog'])
    """
    check_settings(
        format, signatures, top_k, batch_size, on_bad_image, warmup_batch_sizes, quantize
    )
    check_calibration(format, quantize, calibration is not None)
    num_classes = check_classifier(model)
    check_finite(model)
    if format == "saved_model" and num_classes < 2:
        raise ValueError(
            "`model` must have two classes or more for a SavedModel, whose probabilities are a "
            f"softmax of the logits. Received: a model of {num_classes}"
        )
    class_names = class_names_or_numbers(class_names, num_classes)
    if image_size is not None:
        model = resize(model, image_size)
    images = check_images(format, quantize, calibration, model.input_shape[1:3], "calibration")
    if images is not None:
        warn_of_calibration(images)
    facts = _with_facts(model, format, quantize, facts or {})
    if warmup_batch_sizes is None:
        warmup_batch_sizes = (batch_size or 1,) if has_serving_api() else ()
    with new_version(directory, version) as (folder, publish), _enough_space(directory):
        if has_zero_head(model):
            warn_of_zero_head(num_classes)
        if format == "saved_model":
            options = (top_k, batch_size, on_bad_image == "flag")
            written = _write_saved_model(
                model, folder, signatures, class_names, options, warmup_batch_sizes
            )
        else:
            written = _write_file(model, folder, format, quantize, calibration, class_names)
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        (written / "model.json").write_text(text, encoding="utf-8")
        path = publish(written)
    if format == "saved_model":
        _write_operations(path.parent)
    return path


@contextlib.contextmanager
def _enough_space(directory):
    """Turns what each package says of a full disk into an `OSError` that names the directory."""
    try:
        yield
    except Exception as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error


def _write_saved_model(model, folder, signatures, class_names, options, warmup_batch_sizes):
    # They import TensorFlow.
    from keras_vit.serving.formats.saved_model import write_saved_model

    written = write_saved_model(model, folder, signatures, class_names, *options)
    if warmup_batch_sizes:
        from keras_vit.serving.warmup import write_warmup

        write_warmup(written, warmup_batch_sizes, folder.parent.name)
    return written


def _write_file(model, folder, format, quantize, calibration, class_names):
    # They import the formats' own packages.
    from keras_vit.serving.formats import WRITERS

    written = folder / "written"
    (written / labels.FOLDER).mkdir(parents=True)
    WRITERS[format](model, written, quantize, calibration)
    labels.write_labels(written / labels.FOLDER, class_names)
    return written


def _write_operations(directory):
    from keras_vit.serving.operations import write_operations

    write_operations(directory, directory.name)


def _with_facts(model, format, quantize, others):
    """The contents of `model.json`: the facts of any export, and others that the caller gives."""
    facts = _facts(model, format, quantize)
    if not facts.keys().isdisjoint(others):
        raise ValueError(
            f"`facts` must not have {', '.join(map(repr, facts))}, which are read off the model. "
            f"Received: {', '.join(map(repr, others))}"
        )
    return {**facts, **others}


def _builder_facts(model):
    """The variant of a model, or `None`, and a dictionary of other options than the defaults."""
    options = describe(model)
    row = match_variant(options)
    changed = changed_options(options, row)
    others = {name: changed[name][0] for name in changed if name not in DROPOUT_OPTIONS}
    return {"variant": row and row.name, "options": others}


def _facts(model, format, quantize):
    """What `model.json` says of any export."""
    return {
        "model": model.name,
        **_builder_facts(model),
        "image_size": model.input_shape[1:3],
        "num_classes": model.output_shape[-1],
        "parameters": model.count_params(),
        "preprocessing": "bilinear resize of the whole image without antialiasing and with "
        "half-pixel centers, to floats, as tf.image.resize; (pixels - 127.5) / 127.5",
        "format": format,
        "quantize": quantize,
        "keras_vit": keras_vit.__version__,
        "keras": keras.__version__,
    }
