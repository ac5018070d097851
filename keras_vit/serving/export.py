"""Export a model with its preprocessing, for TF Serving and other runtimes."""

import contextlib
import dataclasses
import importlib.resources
import importlib.util
import json
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.core.arguments import check_choice, check_integer, is_integer
from keras_vit.core.files import PARTIAL, exclusive_lock, replacing
from keras_vit.core.text import check_class_names
from keras_vit.models import resize
from keras_vit.models.image_model import check_images, image_spec_of
from keras_vit.models.keras_files import check_finite
from keras_vit.models.options import changed_options
from keras_vit.models.structure import (
    check_backbone,
    check_classifier,
    has_zero_head,
    is_segmenter,
    output_name,
    predicts_values,
    stored_size,
    warn_of_zero_head,
)
from keras_vit.models.variants import match_variant
from keras_vit.serving.formats import (
    FORMATS,
    METADATA_FILE,
    SIGNATURES,
    USUAL_SIGNATURES,
    format_of,
    requiring_extra,
    version_folders,
    write_labels,
)
from keras_vit.version import __version__

# TF Serving reads versions as 64-bit integers.
VERSIONS_END = 2**63
FEWEST_CALIBRATION_IMAGES = 10
# Templates of TF Serving's settings.
TEMPLATES = importlib.resources.files("keras_vit.serving") / "deployment"


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
    metadata: dict | None = None,
) -> pathlib.Path:
    """Export a model for serving to `directory/<version>/`.

    A SavedModel has these signatures; the first one is stored as `serving_default`:

    - `"bytes"` takes `image_bytes`, strings `(batch,)`: encoded images (JPEG, PNG, still WebP) of
      any size, which the graph decodes, resizes and scales as in evaluation.
    - `"uint8"` takes `images`, uint8 `(batch, height, width, channels)` of any size.
    - `"float"` takes preprocessed `images`, float32 `(batch, height, width, channels)` in [-1, 1].
    - `"features"` takes `image_bytes` and returns `features`, float32 `(batch, width)`.

    Encoded images of models with one channel become gray. Encoded images of models with four
    channels must be PNGs with alpha. With another number of channels than 1, 3 and 4, `"bytes"` and
    `"features"` are left out, and a warning is logged.

    For a classifier, the first three return `logits` and `probabilities`, float32
    `(batch, num_classes)`, and for the most likely classes `top_k_classes`, int32, `top_k_labels`,
    strings, and `top_k_probabilities`, float32, all `(batch, top_k)`. If `model.thresholds` is set,
    the probabilities are sigmoids, and there are also `predicted`, bool, and `predicted_labels`,
    strings that are empty where `predicted` is false, both `(batch, num_classes)`. For a model that
    predicts values, the first three return only `values`, float32 `(batch, num_classes)`. For a
    `keras_vit.segmenter`, the first three return `logits` `(batch, height, width, num_classes)` and
    `masks`, int32 `(batch, height, width)`, in the size of the resized images. For a model without
    a head (`num_classes=0`), all signatures return `features`.

    Exports in other formats take preprocessed `images`. They return `logits` or `values`, or
    `features` if the model has no head.

    The version also contains `model.json`, which describes the model, and the class names. For a
    SavedModel, settings for TF Serving are written to `directory`; files that exist are kept. A
    version is written to a temporary folder and then renamed, so a server never reads half a model.

    Args:
        model: a classifier or segmenter of this package that returns logits, or a model without a
            head that returns a vector. SavedModels need the TensorFlow or JAX backend.
        directory: directory of the model's versions; its name is the name of the served model.
        version: a positive integer, or `"auto"` for one more than the last.
        format: `"saved_model"`, or the name of another format in
            `keras_vit.serving.formats.FORMATS`, such as `"onnx"`.
        signatures: signatures of a SavedModel. Other formats ignore `signatures`, `top_k`,
            `batch_size`, `on_bad_image` and `warmup_batch_sizes`.
        top_k: greatest number of most likely classes to return.
        class_names: names of the classes; by default `model.class_names`, or the class numbers if
            the model has no names.
        batch_size: number of images in a request; `None` for any number.
        image_size: int or `(height, width)` to resize the model to; `None` to keep its size. The
            export of a model that takes images of any size takes any size as well; its signatures
            that resize images use the size of the position embeddings, as `model.json` records.
        on_bad_image: what to do with images that cannot be decoded. `"error"` rejects the request
            with a message that lists their indices. `"flag"` returns zeros for them, and adds the
            output `is_bad`, bool `(batch,)`.
        warmup_batch_sizes: batch sizes of the requests with which TF Serving warms up the model; by
            default `batch_size` or 1 if `tensorflow-serving-api` is installed, otherwise none.
        quantize: `"int8"`, `"float16"` or `"bfloat16"`, if the format supports it; `None` for
            float32.
        calibration: float32 `(images, height, width, channels)`, preprocessed images like those
            that will be served; needed for int8 in ONNX and OpenVINO.
        metadata: dictionary of additional entries for `model.json`.

    Returns:
        The `pathlib.Path` of the version.

    Raises:
        ValueError: if an argument is out of range, the version exists, the model does not take
            images or has weights that are not finite, or the backend cannot write the format.
        ImportError: if a package is missing; the message names what to install.
        OSError: if the directory cannot be written or the disk is full.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> path = keras_vit.export(model, tmp_path / "pets", class_names=["cat", "dog"])
    >>> path.name, (path / "assets" / "labels.txt").read_text().split()
    ('1', ['cat', 'dog'])
    """
    check_choice("format", format, tuple(FORMATS))
    check_choice("on_bad_image", on_bad_image, ("error", "flag"))
    for signature in signatures:
        check_choice("signatures", signature, SIGNATURES)
    check_integer("top_k", top_k, minimum=1)
    if batch_size is not None:
        check_integer("batch_size", batch_size, minimum=1)
    target = FORMATS[format]
    if quantize is not None:
        check_choice("quantize", quantize, (*target.precisions, None))
        if predicts_values(model) and quantize in ("float16", "bfloat16"):
            raise ValueError(
                "`quantize` must be None or 'int8' for a model that predicts values, which 16 bits "
                f"would round. Received: quantize={quantize!r}"
            )
    class_names = _recorded_class_names(target, model, quantize, class_names)
    if image_size is not None:
        model = resize(model, image_size)
    needs_images = quantize is not None and target.precisions[quantize].needs_images
    images = _calibration_images(calibration) if needs_images else None
    settings = {"quantize": quantize, "images": images}
    if target.has_signatures:
        settings = {
            "signatures": signatures,
            "image_spec": image_spec_of(model),
            "class_names": class_names,
            "thresholds": getattr(model, "thresholds", None),
            "top_k": top_k,
            "batch_size": batch_size,
            "flags_bad_images": on_bad_image == "flag",
        }
        if warmup_batch_sizes is None and importlib.util.find_spec("tensorflow_serving"):
            warmup_batch_sizes = (batch_size or 1,)
    text = json.dumps({**(metadata or {}), **_metadata(model, format, quantize)}, indent=2)
    with new_version(directory, version) as (folder, publish):
        written = folder / "written"
        written.mkdir()
        with requiring_extra(target.name):
            target.implementation.write(model, written / target.file_name, folder, **settings)
        if class_names:
            write_labels(written, class_names)
        (written / METADATA_FILE).write_text(f"{text}\n", encoding="utf-8")
        if target.has_signatures and warmup_batch_sizes:
            # Imported late: the module imports TensorFlow.
            from keras_vit.serving.warmup import write_warmup

            write_warmup(written, warmup_batch_sizes, folder.parent.name)
        path = publish(written)
    if target.has_signatures:
        write_settings(path.parent, path.parent.name)
    return path


def _recorded_class_names(target, model, quantize, class_names):
    """Check that the target format fits a model; return the class names, `None` without a head."""
    check_backbone(model)
    has_head = output_name(model) != "features"
    shapes = [tuple(tensor.shape) for tensor in (*model.inputs, *model.outputs)]
    if not has_head and list(map(len, shapes)) != [4, 2]:
        raise ValueError(
            "`model` must map images to logits, or to one vector per image. "
            f"Received: a model with the shapes {', '.join(map(str, shapes))}"
        )
    if has_head and not is_segmenter(model):
        check_classifier(model)
    check_finite(model, dtype=target.precisions[quantize].dtype if quantize else "float32")
    size, num_classes = 4 * model.count_params(), model.output_shape[-1]
    if target.max_bytes is not None and size > target.max_bytes:
        raise ValueError(
            f"`format={target.name!r}` holds less than {target.max_bytes / 2**30:.0f} GB. "
            f"Received: a model of {size / 2**30:.1f} GB in float32"
        )
    if not has_head:
        return None
    if target.has_signatures and num_classes < 2 and not predicts_values(model):
        raise ValueError(
            "`model` must have at least 2 classes: the softmax of one logit is always 1. "
            f"Received: a model with num_classes={num_classes}"
        )
    if not is_segmenter(model) and has_zero_head(model):
        warn_of_zero_head(num_classes)
    if class_names is not None:
        return list(check_class_names(class_names, num_classes=num_classes))
    return list(getattr(model, "class_names", None) or map(str, range(num_classes)))


def _calibration_images(images):
    """Return calibration images as float32; the converters check their shape."""
    if images is None:
        rule = "`calibration` must be preprocessed images like those that will be served"
        raise ValueError(f"{rule}. Received: None")
    array = np.asarray(images)
    check_images(array, "calibration")
    if len(array) < FEWEST_CALIBRATION_IMAGES:
        log = logging.getLogger("keras_vit")
        log.warning("int8 is calibrated on only %d images: use a few hundred", len(array))
    return array.astype("float32")


def _metadata(model, format, quantize):
    """Return the entries of `model.json` that every export has.

    `options` has only the options that differ from those of `variant`. `variant` is `None` if the
    model is not based on a variant.
    """
    options = getattr(model, "options", None)
    variant = match_variant(options) if options else None
    changed = changed_options(options, variant) if options else {}
    return {
        "model": model.name,
        "variant": variant and variant.name,
        "options": {
            name: new for name, (new, _) in changed.items() if name not in options.names("training")
        },
        "image_size": stored_size(model),
        "num_classes": model.output_shape[-1] if output_name(model) != "features" else 0,
        "parameters": model.count_params(),
        "preprocessing": "resized and cropped as in image_spec, then (pixels - 127.5) / 127.5",
        "image_spec": dataclasses.asdict(image_spec_of(model)),
        "thresholds": getattr(model, "thresholds", None),
        "predicts_values": predicts_values(model),
        "format": format,
        "quantize": quantize,
        "keras_vit": __version__,
        "keras": keras.__version__,
    }


@contextlib.contextmanager
def new_version(directory, version="auto"):
    """Provide a temporary folder, and a function that publishes a subfolder as a new version.

    Other exports to the same directory wait until the `with` block ends and the folder is removed.

    Args:
        directory: directory of the model's versions, which is created if it does not exist.
        version: a positive integer that is not taken; `"auto"` for one more than the last.

    Yields:
        `(folder, publish)`: the `pathlib.Path` of the empty folder, and a function that moves a
        subfolder to the path of the version, and returns that path.
    """
    directory = pathlib.Path(directory).expanduser().resolve()
    if format_of(directory) or (directory / "run.json").exists():
        raise ValueError(
            "`directory` must be a folder of numbered versions, not a version or a training run. "
            f"Received: directory={str(directory)!r}"
        )
    taken = [number for number, _ in version_folders(directory)]
    is_new = is_integer(version) and 0 < version < VERSIONS_END and version not in taken
    if version != "auto" and not is_new:
        raise ValueError(
            "`version` must be a positive integer that is not taken, or 'auto'. "
            f"Received: version={version!r}, taken: {taken}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(directory):
        # Remove the temporary folders of exports that were killed.
        for partial in directory.glob(f".*{PARTIAL}"):
            shutil.rmtree(partial, ignore_errors=True)
        last = max((number for number, _ in version_folders(directory)), default=0)
        number = last + 1 if version == "auto" else version
        folder = directory / f".{number}{PARTIAL}"
        folder.mkdir()
        try:
            yield folder, lambda written: written.replace(directory / str(number))
        finally:
            # Keep the directory even if it is new: other exports may wait for its lock.
            shutil.rmtree(folder, ignore_errors=True)


def write_settings(directory, name):
    """Write the settings of TF Serving next to an export, from the templates in `deployment/`.

    Existing files are not changed, because users adapt them.

    Reference:
        https://www.tensorflow.org/tfx/serving/serving_config
    """
    # Replace characters that are escaped in URLs.
    served_name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(name))
    for template in TEMPLATES.iterdir():
        path = pathlib.Path(directory) / template.name
        if not path.exists():
            text = template.read_text(encoding="utf-8").replace("{name}", served_name)
            with replacing(path) as partial:
                partial.write_text(text, encoding="utf-8")
