"""Models and exports, loaded to predict."""

import dataclasses
import hashlib
import logging
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_vit.checkpoints.catalog.download import files_of, find_file
from keras_vit.checkpoints.runs import find_model
from keras_vit.checkpoints.trained import load_trained
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.data.images.transforms import ImageMaker, evaluation_image
from keras_vit.models.features import feature_extractor
from keras_vit.models.inference import for_inference
from keras_vit.models.model import carry, image_spec_of
from keras_vit.models.parts import check_classifier, has_zero_head, stored_size, warn_of_zero_head
from keras_vit.models.surgery import copy_layer, copy_model, plain
from keras_vit.serving.labels import labels_of
from keras_vit.serving.loaded import input_size, load_parts, recorded
from keras_vit.serving.predict import find_export, upright

_CLASS_OUTPUTS = {"prediction", "probability", "probabilities", "logits"}


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What predicts images.

    Args:
        prepare: function from the bytes of a file to what `run` takes of it. It raises
            `tf.errors.OpError` for a file that cannot be decoded.
        prepare_pixels: the same from uint8 pixels `(height, width, 3)`.
        run: function from a list of prepared images to a dictionary of float32 arrays: `logits`,
            `features`, `attention_distance`.
        class_names: names of the classes, or `None`.
        thresholds: thresholds of the probabilities of a model of several labels, or `None`.
    """

    prepare: Callable
    prepare_pixels: Callable
    run: Callable
    class_names: list[str] | None
    thresholds: tuple[float, ...] | None


def open_model(path, outputs, batch_size, dtype=None, image_size=None):
    """Load a model or an export; the arguments are those of `Predictor`.

    Returns:
        A `LoadedModel`.
    """
    version = find_export(path)
    if version is None:
        model = load_trained(path, image_size)
        names = getattr(model, "class_names", None)
        return of_model(model, names and list(names), outputs, batch_size, dtype)
    others = [name for name in outputs if name not in _CLASS_OUTPUTS]
    if others or dtype is not None:
        received = f"dtype={dtype!r}" if dtype is not None else f"outputs={others}"
        raise ValueError(
            "An export computes logits in the type it was written for: give the model for other "
            f"outputs or a `dtype`. Received: {str(path)!r}, {received}"
        )
    return of_export(version, image_size)


def of_model(model, class_names, outputs, batch_size, dtype=None):
    """Make a `LoadedModel` of a model of this package; the arguments are as in `Predictor`."""
    model = model if dtype is None else _in_dtype(model, dtype)
    wanted, as_float32 = {}, keras.layers.Activation("linear", dtype="float32")
    if _CLASS_OUTPUTS & set(outputs):
        check_classifier(model)
        _check_names(class_names, model.output_shape[-1])
        if class_names is None:
            logging.getLogger("keras_vit").info(
                "the model has no class names, so predictions are numbers: set `model.class_names` "
                "before saving it, or add `id2label` to the config.json of a transformers model"
            )
        if has_zero_head(model):
            warn_of_zero_head(model.output_shape[-1])
        wanted["logits"] = as_float32(model.output)
    if "features" in outputs:
        wanted["features"] = feature_extractor(model).output
    network = for_inference(keras.Model(model.input, wanted)) if wanted else None
    measure = None
    if "attention_distance" in outputs:
        from keras_vit.inspection.distance import image_distances

        measure = image_distances(model)

    def run(prepared):
        # Batches of one size: other backends would compile again, and sums stay the same.
        images = np.zeros((batch_size, *prepared[0].shape), "float32")
        images[: len(prepared)] = prepared
        found = network.predict_on_batch(images) if wanted else {}
        if measure is not None:
            found["attention_distance"] = measure(images)
        return {name: np.asarray(values)[: len(prepared)] for name, values in found.items()}

    maker = _image_makers(stored_size(model), image_spec_of(model))
    thresholds = getattr(model, "thresholds", None)
    return LoadedModel(*maker, run, class_names, thresholds)


def of_export(version, image_size=None):
    """Make a `LoadedModel` of the directory of one version of an export, of any format."""
    image_spec, thresholds = recorded(version)
    size, answer = load_parts(version, image_size)
    makers = (
        lambda encoded: upright(encoded, decode(encoded, image_spec.antialias)),
        lambda pixels: tf.io.encode_png(pixels).numpy(),
    )
    if size is not None:
        # Only an export of any size is given another one.
        own_size = size if image_size is None else input_size(version, (None,))
        makers = _image_makers(size, image_spec.at(size, own_size))
    names, first = labels_of(version), []

    def run(prepared):
        logits = answer(prepared)
        if not first:
            first.append(logits)
            _check_names(names, logits.shape[-1])
            if (np.ptp(logits, axis=-1) == 0).all():
                warn_of_zero_head(logits.shape[-1])
        return {"logits": logits}

    return LoadedModel(*makers, run, names, thresholds)


def _image_makers(image_size, image_spec):
    """Return functions from the bytes of a file, and from pixels, to an image as in evaluation."""
    preprocessing = Preprocessing(upright=True, image_spec=image_spec)
    make = ImageMaker(image_size, preprocessing).make()
    one_file, pixels = tf.TensorSpec((), tf.string), tf.TensorSpec((None, None, 3), tf.uint8)

    @tf.function(input_signature=[one_file], autograph=False)
    def of_file(encoded):
        return make(encoded, tf.zeros(2, tf.int64))

    @tf.function(input_signature=[pixels], autograph=False)
    def of_pixels(image):
        return evaluation_image(image, image_size, image_spec)

    return lambda encoded: of_file(encoded).numpy(), lambda image: of_pixels(image).numpy()


def _in_dtype(model, dtype):
    """Return the model as its builder makes it for a type to compute in, with its weights."""
    policy = dtype if dtype == "float32" else f"mixed_{dtype}"

    def layer(old):
        # The head and what follows it stay float32.
        is_kept = old.name in ("head", "logits") or isinstance(old, keras.layers.InputLayer)
        return copy_layer(old, **({} if is_kept else {"dtype": policy}))

    new = copy_model(plain(model), layer)
    carry(model, new)
    return new


def _check_names(class_names, num_classes):
    if num_classes < 2:
        raise ValueError(
            "A model must have two classes or more to be predicted: the softmax of one logit is "
            f"always 1. Received: a model with {num_classes} output"
        )
    if class_names and len(class_names) != num_classes:
        raise ValueError(
            "A model must have as many outputs as its classes have names. "
            f"Received: {num_classes} outputs and {len(class_names)} names"
        )


def digest_of_model(path):
    """Return a digest of the files of a model or an export; a checkpoint's name downloads it."""
    found = hashlib.sha256()
    for file in _files_of_model(path):
        with file.open("rb") as opened:
            found.update(hashlib.file_digest(opened, "sha256").digest())
    return found.hexdigest()[:16]


def _files_of_model(path):
    version = find_export(path)
    if version is not None:
        return sorted(filter(pathlib.Path.is_file, version.rglob("*")))
    file = find_model(path)
    file = file if file.suffix == ".keras" else find_file(path)
    files = sorted(filter(pathlib.Path.is_file, set(files_of(file))))
    if not files:
        raise ValueError(
            "`model` must be a run's directory, a .keras file, a checkpoint or an export. "
            f"Received: {str(path)!r}, which is not there"
        )
    return files
