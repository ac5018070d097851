"""Export of a model and its preprocessing, for TF Serving and other runtimes."""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.core.class_names import check_class_names
from keras_vit.models import resize
from keras_vit.models.inference import for_inference
from keras_vit.models.model import image_spec_of
from keras_vit.models.options import changed_options
from keras_vit.models.parts import has_zero_head, stored_size, warn_of_zero_head
from keras_vit.models.variants import match_variant
from keras_vit.serving import labels
from keras_vit.serving.calibration import check_images, warn_of_calibration
from keras_vit.serving.checks import check_export_settings, check_model, has_serving_api
from keras_vit.serving.formats.saved_model import USUAL_SIGNATURES
from keras_vit.serving.operations import write_operations
from keras_vit.serving.versions import new_version
from keras_vit.version import __version__


def export(
    model: keras.Model,
    directory: str | os.PathLike,
    version: int | str = "auto",
    format: str = "saved_model",
    signatures: Sequence[str] = USUAL_SIGNATURES,
    top_k: int = 5,
    class_names: Sequence[str] | None = None,
    batch_size: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    on_bad_image: str = "error",
    warmup_batch_sizes: Sequence[int] | None = None,
    quantize: str | None = None,
    calibration: Any = None,
    facts: dict | None = None,
) -> pathlib.Path:
    """Write a model for serving, to `directory/<version>/`.

    A SavedModel has these signatures; the first one is stored as `serving_default`:

    - `"bytes"` takes `image_bytes`, strings `(batch,)`: encoded images (JPEG, PNG, GIF, BMP, still
      WebP) of any size, which are decoded, resized and scaled in the graph as in evaluation.
    - `"uint8"` takes `images`, uint8 `(batch, height, width, 3)` of any size.
    - `"float"` takes preprocessed `images`, float32 `(batch, height, width, 3)` in [-1, 1].
    - `"features"` takes `image_bytes` and returns `features`, float32 `(batch, width)`.

    The first three return `logits` and `probabilities`, float32 `(batch, num_classes)`, and for the
    most likely classes `top_k_classes`, int32, `top_k_labels`, strings, and `top_k_probabilities`,
    float32, all `(batch, top_k)`. With `model.thresholds` probabilities are sigmoids, and there are
    `predicted`, bool, and `predicted_labels`, strings that are empty where `predicted` is false,
    both `(batch, num_classes)`. A `keras_vit.segmenter` has `logits` `(batch, height, width,
    num_classes)` and `masks`, int32 `(batch, height, width)`, of the images as they are resized.
    Other formats take preprocessed `images` and return `logits`.

    The version also contains `model.json`, which describes the model, and the names of the classes.
    For a SavedModel, settings for TF Serving are written to the directory, unless they exist. A
    version is written next to its place and then renamed, so a server never sees half a model.

    Args:
        model: a classifier or segmenter of this package that returns logits; for a SavedModel on
            the TensorFlow or JAX backend.
        directory: path of the model's directory, which holds its versions; its name is the model's.
        version: a positive integer, or `"auto"` for one more than the last.
        format: `"saved_model"`, or the name of another format in
            `keras_vit.serving.formats.FORMATS`, such as `"onnx"`.
        signatures: signatures of a SavedModel. This, `top_k`, `batch_size`, `on_bad_image` and
            `warmup_batch_sizes` are for SavedModels only.
        top_k: number of the most likely classes that are named, at most.
        class_names: names of the classes; `None` for those that the model carries, or their
            numbers.
        batch_size: images in a request; `None` for any number.
        image_size: int or `(height, width)` to resize the model to; `None` for its own. A model of
            any size keeps accepting any; only signatures that resize images use one size, that of
            its position embeddings, which `model.json` records.
        on_bad_image: `"error"` to refuse requests with images that cannot be decoded, with their
            indices in the message; or `"flag"` to answer the others: the outputs for bad images are
            then zeros, and `is_bad`, bool `(batch,)`, is an output too.
        warmup_batch_sizes: sizes of the requests that TF Serving makes when it loads the model; by
            default `batch_size` or 1 if `tensorflow-serving-api` is installed, otherwise none.
        quantize: `"int8"`, `"float16"` or `"bfloat16"`, if the format has it; `None` for float32.
        calibration: float32 `(images, height, width, 3)`, some preprocessed images like those that
            will be served; for int8 in ONNX and OpenVINO.
        facts: dictionary of further entries of `model.json`.

    Returns:
        The `pathlib.Path` of the version.

    Raises:
        ValueError: if an argument is out of range, the version exists, the directory cannot be
            written, the model is not a classifier of RGB images or has weights that are not
            finite, the backend cannot write the format, or a package is missing.
        OSError: if the disk is full.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> path = keras_vit.export(model, tmp_path / "pets", class_names=["cat", "dog"])
    >>> path.name, (path / "assets" / "labels.txt").read_text().split()
    ('1', ['cat', 'dog'])
    """
    row = check_export_settings(
        *(format, signatures, top_k, batch_size, on_bad_image, warmup_batch_sizes),
        *(quantize, calibration is not None),
    )
    num_classes = check_model(row, model, quantize)
    if class_names is None:
        carried = getattr(model, "class_names", None)
        class_names = list(carried or map(str, range(num_classes)))
        if not carried:
            text = "no class names are given or carried by the model: the labels are numbers"
            logging.getLogger("keras_vit").info(text)
    else:
        class_names = list(check_class_names(class_names, num_classes=num_classes))
    if image_size is not None:
        model = resize(model, image_size)
    images = check_images(format, quantize, calibration, model.input_shape[1:3], "calibration")
    if images is not None:
        warn_of_calibration(images)
    facts, others = _facts(model, format, quantize), facts or {}
    if not facts.keys().isdisjoint(others):
        raise ValueError(
            f"`facts` must not have {', '.join(map(repr, facts))}, which come from the model. "
            f"Received: {', '.join(map(repr, others))}"
        )
    settings = {"quantize": quantize, "images": images}
    if row.has_signatures:
        settings = {
            "signatures": signatures,
            "image_spec": image_spec_of(model),
            "class_names": class_names,
            "thresholds": getattr(model, "thresholds", None),
            "top_k": top_k,
            "batch_size": batch_size,
            "flags_bad_images": on_bad_image == "flag",
        }
        if warmup_batch_sizes is None:
            warmup_batch_sizes = (batch_size or 1,) if has_serving_api() else ()
            if not warmup_batch_sizes:
                text = "no requests to warm up, which need pip install 'keras-vit-zoo[serving]'"
                logging.getLogger("keras_vit").info(text)
    with new_version(directory, version) as (folder, publish), _enough_space(directory):
        if has_zero_head(model):
            warn_of_zero_head(num_classes)
        written = folder / "written"
        (written / labels.FOLDER).mkdir(parents=True)
        row.write(for_inference(model), written / row.file_name, folder, **settings)
        labels.write_labels(written / labels.FOLDER, class_names)
        text = json.dumps({**facts, **others}, indent=2, ensure_ascii=False) + "\n"
        (written / "model.json").write_text(text, encoding="utf-8")
        if warmup_batch_sizes:
            # It imports TensorFlow.
            from keras_vit.serving.warmup import write_warmup

            write_warmup(written, warmup_batch_sizes, folder.parent.name)
        path = publish(written)
    if row.has_signatures:
        write_operations(path.parent, path.parent.name)
    return path


@contextlib.contextmanager
def _enough_space(directory):
    """Turn any package's error about a full disk into an `OSError` that names the directory."""
    try:
        yield
    except Exception as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error


def _facts(model, format, quantize):
    """Return the entries of `model.json` that every export has.

    `options` are those that differ from the defaults of the variant, which may be `None`.
    """
    options = getattr(model, "options", None)
    row = match_variant(options) if options else None
    changed = changed_options(options, row) if options else {}
    image_spec = image_spec_of(model)
    thresholds = getattr(model, "thresholds", None)
    return {
        "model": model.name,
        "variant": row and row.name,
        "options": {
            name: own for name, (own, _) in changed.items() if name not in options.names("training")
        },
        "image_size": stored_size(model),
        "num_classes": model.output_shape[-1],
        "parameters": model.count_params(),
        "preprocessing": "resized and cropped as in image_spec, then (pixels - 127.5) / 127.5",
        "image_spec": dataclasses.asdict(image_spec),
        **({} if thresholds is None else {"thresholds": thresholds}),
        "format": format,
        "quantize": quantize,
        "keras_vit": __version__,
        "keras": keras.__version__,
    }
