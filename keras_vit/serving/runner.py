"""`Runner`: one interface for loaded models and for exports of any format."""

import dataclasses
import json
import logging
import os
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_vit.checkpoints.named_models import load_trained
from keras_vit.core.arguments import as_pair
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec
from keras_vit.data.images.decoding import as_pixels, decode, stored_values
from keras_vit.data.images.geometry import ImageMaker, evaluation_image
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.inspection.analyses import image_distances
from keras_vit.models.features import feature_extractor
from keras_vit.models.image_model import check_images, copy_attributes, image_spec_of
from keras_vit.models.inference import for_inference
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
from keras_vit.models.surgery import copy_layer, copy_model, with_float_kernels
from keras_vit.serving.formats import LABELS, METADATA_FILE, find_export, format_of, requiring_extra
from keras_vit.serving.image_files import upright

CLASS_OUTPUTS = ("prediction", "probability", "probabilities", "logits", "values")


@dataclasses.dataclass(frozen=True)
class Runner:
    """A loaded model or export: a function of preprocessed images, or of encoded images.

    Args:
        run: function that maps a batch of at least one image to a dictionary of arrays.
        image_shape: `(height, width, channels)` of preprocessed images, with `None` for any height
            or width; or `None` if `run` takes encoded images.
        batch_size: number of images that `run` takes; `None` for any number.
        image_size: `(height, width)` to which images are resized.
        image_spec: the `ImageSpec` by which images are resized and cropped.
        class_names: names of the classes, or `None`.
        thresholds: thresholds of the probabilities of a multi-label model, or `None`.
        predicts_values: whether the output is `values`, which `class_names` name.
    """

    run: Callable
    image_shape: tuple | None
    batch_size: int | None = None
    image_size: tuple[int, int] | None = None
    image_spec: ImageSpec = WHOLE_IMAGE
    class_names: list[str] | None = None
    thresholds: tuple[float, ...] | None = None
    predicts_values: bool = False
    # Functions that prepare an image: one takes the bytes of a file, the other takes pixels.
    makers: tuple | None = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "makers", self.image_shape and self._image_makers())

    def _image_makers(self):
        preprocessing = Preprocessing(upright=True, image_spec=self.image_spec)
        make = ImageMaker(self.image_size, preprocessing).make()

        @tf.function(input_signature=[tf.TensorSpec((), tf.string)], autograph=False)
        def from_file(encoded):
            return make(encoded, tf.zeros(2, tf.int64))

        stored = [tf.TensorSpec((None, None, None), tf.float32), tf.TensorSpec((), tf.float32)]

        @tf.function(input_signature=stored, autograph=False)
        def from_pixels(values, greatest):
            image = as_pixels(values, greatest, self.image_spec)
            return evaluation_image(image, self.image_size, self.image_spec)

        return from_file, from_pixels

    def __call__(self, images):
        """Return the logits or features of images, float32, if there is only one output."""
        if self.image_shape is not None:
            images = np.asarray(images)
            check_images(images)
            images = images.astype("float32", copy=False)
            fits = None in self.image_shape or images.shape[1:] == self.image_shape
            if images.ndim != 4 or not fits:
                raise ValueError(
                    f"`images` must be an array (n, {', '.join(map(str, self.image_shape))}). "
                    f"Received: an array {images.shape}"
                )
            if not len(images):
                return self(np.zeros((1, *images.shape[1:]), "float32"))[:0]
        (outputs,) = self.outputs(images).values()
        return outputs

    def outputs(self, images):
        """Return a dictionary of the float32 outputs for a list of prepared images."""
        step, results = self.batch_size or len(images), []
        for start in range(0, len(images), step):
            batch = list(images[start : start + step])
            # Fill up the last batch: a smaller one would be compiled again, and round differently.
            filled = batch + batch[-1:] * ((self.batch_size or 0) - len(batch))
            answer = self.run(filled if self.image_shape is None else np.stack(filled))
            arrays = {name: np.asarray(values, "float32") for name, values in answer.items()}
            results.append({name: values[: len(batch)] for name, values in arrays.items()})
        return {name: np.concatenate([r[name] for r in results]) for name in results[0]}

    def prepare(self, encoded):
        """Return an image for `outputs` from the bytes of a file, turned upright.

        Raise `tf.errors.InvalidArgumentError` for a file that cannot be decoded.
        """
        if self.image_shape is None:
            return upright(encoded, decode(encoded, self.image_spec))
        return self.makers[0](encoded).numpy()

    def prepare_pixels(self, pixels):
        """Return an image for `outputs` from pixels `(height, width, channels)`."""
        if self.image_shape is None:
            return tf.io.encode_png(pixels).numpy()
        return self.makers[1](*stored_values(pixels)).numpy()


def load_runner(
    path: str | os.PathLike,
    outputs: tuple[str, ...] | None = None,
    batch_size: int = 32,
    dtype: str | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Runner:
    """Load an export in its own runtime, on the CPU, or a model in Keras.

    Args:
        path: an export (a file such as `model.onnx`, the directory of a version, or the directory
            of all versions, to load the newest), a run's directory, a `.keras` file, or a
            checkpoint as in `keras_vit.from_checkpoint`.
        outputs: names of the outputs: `"logits"`, `"values"`, `"features"`, or, for a model only,
            `"attention_distance"`; by default logits or values, or features without a head.
        batch_size: number of images in each call of a model.
        dtype: dtype in which a model computes; by default the dtype of the model.
        image_size: int or `(height, width)`, for a model, or for an export that takes images of
            any size.

    Returns:
        A `Runner`: a function of preprocessed images, float32 `(n, height, width, channels)`
        in [-1, 1],
        or, for a SavedModel, of a list of encoded images. It returns float32 logits, or the
        features of a model without a head.

    Raises:
        ValueError: if the file is missing or damaged, or is not a model.
        ImportError: if a package is missing.

    Example:
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> run = keras_vit.serving.load_runner(keras_vit.export(model, tmp_path, format="onnx"))
    >>> run(np.zeros((2, 32, 32, 3), "float32")).shape
    (2, 3)
    """
    image_size = None if image_size is None else as_pair(image_size, "image_size")
    version = find_export(path)
    if version is None:
        return model_runner(load_trained(path, image_size), outputs, batch_size, dtype)
    if dtype is not None:
        rule = "`dtype` must be None for an export, which computes in the type it was written for"
        raise ValueError(f"{rule}. Received: dtype={dtype!r}")
    return export_runner(version, outputs, image_size)


def export_runner(version, outputs=None, image_size=None):
    """Load a version of an export; see `load_runner`."""
    export_format = format_of(version)
    file = version / export_format.file_name
    output = "features" if outputs and not set(CLASS_OUTPUTS) & set(outputs) else None
    try:
        with requiring_extra(export_format.name):
            run, image_shape, batch_size = export_format.implementation.load(file, output)
        metadata = json.loads((version / METADATA_FILE).read_text(encoding="utf-8"))
        old_size, image_spec = tuple(metadata["image_size"]), ImageSpec(**metadata["image_spec"])
    except ImportError:
        raise
    # Each runtime has its own exceptions, and some of them are plain `Exception`s.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ValueError(
            "`path` must be a complete export, as `keras_vit.export` writes it. "
            f"Received: path={str(file)!r} ({reason:.200})"
        ) from error
    if image_size is not None and (image_shape is None or None not in image_shape):
        rule = "`image_size` must be None for an export with a fixed image size"
        raise ValueError(f"{rule}. Received: image_size={image_size}, {str(version)!r}")
    labels, size = version / LABELS, image_size or old_size
    names = labels.read_text(encoding="utf-8-sig").splitlines() if labels.is_file() else None
    spec = image_spec.at(size, old_size)
    head = metadata.get("thresholds"), metadata.get("predicts_values", False)
    return Runner(run, image_shape, batch_size, size, spec, names, *head)


def model_runner(model, outputs=None, batch_size=32, dtype=None):
    """Return the `Runner` of a model of this package; see `load_runner`."""
    check_backbone(model)
    model = model if dtype is None else _in_dtype(model, dtype)
    outputs = (output_name(model),) if outputs is None else outputs
    class_names = getattr(model, "class_names", None)
    tensors, as_float32 = {}, keras.layers.Activation("linear", dtype="float32")
    if is_segmenter(model):
        tensors["logits"] = as_float32(model.output)
    elif set(CLASS_OUTPUTS) & set(outputs):
        check_classifier(model)
        if class_names is None:
            logging.getLogger("keras_vit").info(
                "the model has no class names, so predictions are numbers: set `model.class_names` "
                "before saving it, or add `id2label` to the config.json of a transformers model"
            )
        if has_zero_head(model):
            warn_of_zero_head(model.output_shape[-1])
        tensors[output_name(model)] = as_float32(model.output)
    if "features" in outputs:
        tensors["features"] = feature_extractor(model).output
    network = for_inference(keras.Model(model.input, tensors)) if tensors else None
    measure = image_distances(model) if "attention_distance" in outputs else None

    def run(images):
        arrays = network.predict_on_batch(images) if tensors else {}
        return arrays if measure is None else {**arrays, "attention_distance": measure(images)}

    return Runner(
        run,
        tuple(model.inputs[0].shape[1:]),
        batch_size,
        stored_size(model),
        image_spec_of(model),
        class_names and list(class_names),
        getattr(model, "thresholds", None),
        predicts_values(model),
    )


def _in_dtype(model, dtype):
    """Return a copy of a model, with its weights, that computes in a dtype."""
    policy = dtype if dtype == "float32" else f"mixed_{dtype}"

    def layer(old):
        # The unit norm, the head and the layer of its logits stay float32.
        is_float32 = old.name in ("unit_norm", "head", "logits")
        keeps_dtype = is_float32 or isinstance(old, keras.layers.InputLayer)
        return copy_layer(old, **({} if keeps_dtype else {"dtype": policy}))

    new = copy_model(with_float_kernels(model), layer)
    copy_attributes(model, new)
    return new
