"""SavedModels, for TF Serving: the graph also decodes and preprocesses images."""

import dataclasses
import logging
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_vit.core.image_spec import MAX_NORMALIZED, ImageSpec
from keras_vit.data.images.decoding import as_pixels, decode
from keras_vit.data.images.geometry import evaluation_image
from keras_vit.models.inference import for_inference
from keras_vit.models.structure import output_name, representation, stored_size, token_stride
from keras_vit.serving.formats import ENCODED_CHANNELS, ENCODED_SIGNATURES, write_labels

# Greatest number of images that are decoded in parallel.
_IN_PARALLEL = 16


def write(model, path, scratch, *, signatures, **settings):
    """Write a SavedModel; see `ExportFormat` and, for the settings, `_Served`."""
    if keras.backend.backend() == "torch":
        raise ValueError(
            "A SavedModel needs the backend tensorflow or jax: save the model as a .keras file, "
            "and export that file with one of them. Received: the backend torch"
        )
    channels = model.input_shape[-1]
    if channels not in ENCODED_CHANNELS and set(signatures) & set(ENCODED_SIGNATURES):
        text = "no signature takes encoded images, because TensorFlow decodes none with %d channels"
        logging.getLogger("keras_vit").warning(text, channels)
        signatures = [s for s in signatures if s not in ENCODED_SIGNATURES] or ["float"]
    answering = in_tensorflow(model, scratch / "model", settings["batch_size"])
    served = _Served(answering, stored_size(model), scratch, **settings)
    names = ("serving_default", *signatures[1:])
    functions = [served.signature(name) for name in signatures]
    tf.saved_model.save(
        served,
        str(path.parent),
        signatures=dict(zip(names, functions, strict=True)),
        # An export needs no gradients, and those of functions from JAX cannot be saved.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )


@dataclasses.dataclass(eq=False)
class _Served(tf.Module):
    """The object that is saved: a model with the functions of its signatures.

    Args:
        model: a result of `in_tensorflow`.
        image_size: `(height, width)` to which images are resized.
        scratch: directory for the file of the class names, which must exist until the object is
            saved.
        image_spec: the `ImageSpec` of the model.
        class_names: list of the names; `None` for a model without a head.
        thresholds: as in `ImageModel`.
        top_k: as in `keras_vit.export`.
        batch_size: as in `keras_vit.export`.
        flags_bad_images: whether `on_bad_image` is `"flag"`.
    """

    # TensorFlow saves the variables of attributes.
    model: tf.Module
    image_size: tuple[int, int]
    scratch: dataclasses.InitVar[pathlib.Path]
    image_spec: ImageSpec
    class_names: dataclasses.InitVar[list | None]
    thresholds: list | None
    top_k: int
    batch_size: int | None
    flags_bad_images: bool

    def __post_init__(self, scratch, class_names):
        super().__init__(name="served")
        if class_names:
            self.class_names = tf.constant(class_names)
            self.top_k = min(self.top_k, len(class_names))
            file = write_labels(scratch, class_names)
            self.labels = tf.saved_model.Asset(str(file))

    def signature(self, name):
        """Return the `tf.function` of one of `SIGNATURES`."""
        count, preprocessed = self.batch_size, self.model.answer.input_signature[0].shape
        channels = self.image_spec.channels
        # TensorFlow would not check the number of strings; `_decode` checks it.
        arguments = {
            "bytes": (self.answer_bytes, (None,), "string", "image_bytes"),
            "uint8": (self.answer_uint8, (count, None, None, channels), "uint8", "images"),
            "float": (self.answer_float, preprocessed, "float32", "images"),
            "features": (self.answer_features, (None,), "string", "image_bytes"),
        }
        function, shape, dtype, argument = arguments[name]
        spec = tf.TensorSpec(shape, dtype, name=argument)
        return tf.function(function, input_signature=[spec], autograph=False)

    def answer_bytes(self, image_bytes):
        """Classify encoded images."""
        images, is_bad = self._decode(image_bytes)
        return self._flagged(self._answer(images), is_bad)

    def answer_uint8(self, images):
        """Classify uint8 images of the same size."""
        images = tf.ensure_shape(images, images.shape)
        if not self.image_spec.has_rgb_bytes:
            images = as_pixels(tf.cast(images, tf.float32), 255.0, self.image_spec)
        return self._answer(evaluation_image(images, self.image_size, self.image_spec))

    def answer_float(self, images):
        """Classify preprocessed images; refuse values that cannot be preprocessed pixels."""
        # TensorFlow does not check the shape that a loaded signature receives.
        images = tf.ensure_shape(images, images.shape)
        # Replace NaN, which `reduce_max` may ignore.
        sizes = tf.where(tf.math.is_nan(images), np.inf, tf.abs(images))
        largest = tf.reduce_max(sizes)
        refused = tf.debugging.Assert(
            largest <= MAX_NORMALIZED,
            ["`images` must be in [-1, 1]. Received: values up to (inf for NaN)", largest],
        )
        with tf.control_dependencies([refused]):
            return self._answer(tf.identity(images))

    def answer_features(self, image_bytes):
        """Return the features of encoded images."""
        images, is_bad = self._decode(image_bytes)
        return self._flagged({"features": self.model.answer(images)["features"]}, is_bad)

    def _answer(self, images):
        outputs = self.model.answer(images)
        if "logits" not in outputs:
            name = "values" if "values" in outputs else "features"
            return {name: outputs[name]}
        logits = outputs["logits"]
        if logits.shape.rank == 4:
            return {"logits": logits, "masks": tf.argmax(logits, -1, tf.int32)}
        is_multilabel = self.thresholds is not None
        probabilities = tf.sigmoid(logits) if is_multilabel else tf.nn.softmax(logits)
        # Rank the logits: two different logits can both have the probability 1.
        classes = tf.math.top_k(logits, self.top_k).indices
        answer = {
            "logits": logits,
            "probabilities": probabilities,
            "top_k_classes": classes,
            "top_k_labels": tf.gather(self.class_names, classes),
            "top_k_probabilities": tf.gather(probabilities, classes, batch_dims=1),
        }
        if is_multilabel:
            answer["predicted"] = probabilities > self.thresholds
            answer["predicted_labels"] = tf.where(answer["predicted"], self.class_names, "")
        return answer

    def _decode(self, image_bytes):
        """Return preprocessed images, with zeros for bad images, and whether each image is bad."""
        image_bytes = tf.ensure_shape(image_bytes, (self.batch_size,))
        count = tf.shape(image_bytes, out_type=tf.int64)[0]
        shape = (*self.image_size, self.image_spec.channels)

        def read(number, encoded):
            image = decode(encoded, self.image_spec, in_graph=True)
            return number, evaluation_image(image, self.image_size, self.image_spec)

        decoded = (
            tf.data.Dataset.from_tensor_slices(image_bytes)
            .enumerate()
            .map(read, num_parallel_calls=_IN_PARALLEL)
            .ignore_errors()
            # Append an image, so that the batch is not empty if all images are bad.
            .concatenate(tf.data.Dataset.from_tensors((count, tf.zeros(shape))))
        )
        numbers, images = decoded.batch(count + 1).get_single_element()
        indices = numbers[:, None]
        images = tf.scatter_nd(indices, images, tf.stack([count + 1, *shape]))[:count]
        is_good = tf.scatter_nd(indices, tf.ones_like(numbers), [count + 1])[:count]
        images = tf.ensure_shape(images, (self.batch_size, *shape))
        return images, tf.ensure_shape(tf.equal(is_good, 0), (self.batch_size,))

    def _flagged(self, outputs, is_bad):
        """Set the outputs of bad images to zeros and add `is_bad`, or reject the request."""
        if not self.flags_bad_images:
            message = "Images that cannot be decoded, by their index in the batch:"
            refused = tf.debugging.Assert(
                ~tf.reduce_any(is_bad), [message, tf.where(is_bad)[:, 0]], summarize=100
            )
            with tf.control_dependencies([refused]):
                return {name: tf.identity(output) for name, output in outputs.items()}
        masked = {
            name: tf.where(_like(is_bad, output), tf.zeros_like(output), output)
            for name, output in outputs.items()
        }
        return {**masked, "is_bad": is_bad}


def _like(is_bad, output):
    """Reshape one boolean per image to the rank of an output."""
    return tf.reshape(is_bad, (-1, *[1] * (output.shape.rank - 1)))


def in_tensorflow(model, path, batch_size):
    """Convert a model to a TensorFlow object with the model's weights and a function `answer`.

    `answer` maps preprocessed images to a dictionary of `features` and, if the model has a head,
    `logits` or `values`. `path` must not exist; it becomes a directory of temporary files.
    """
    outputs = {"features": representation(model, ("head",)), output_name(model): model.outputs[0]}
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    answering = keras.Model(model.input, {name: as_float32(x) for name, x in outputs.items()})
    answering = for_inference(answering)
    images = tf.TensorSpec((batch_size, *model.input_shape[1:]), "float32", name="images")
    if keras.backend.backend() == "jax":
        return _from_jax(answering, images, path)
    module = tf.Module()
    module.weights = [weight.value for weight in answering.weights]
    module.answer = tf.function(
        lambda images: answering(images, training=False), input_signature=[images], autograph=False
    )
    return module


def _from_jax(model, images, path):
    """Convert a JAX model with Keras's `ExportArchive`.

    The archive would add signatures to the export, so it is written to a directory and loaded from
    there.
    """
    archive = keras.export.ExportArchive()
    # By default JAX exports only for the platform it runs on.
    options = {"native_serialization_platforms": ("cpu", "cuda")}
    if None in model.input_shape[1:3]:
        height, width = token_stride(model)
        count = images.shape[0] or "batch"
        shape = f"{height}*height, {width}*width, {images.shape[-1]}"
        options["polymorphic_shapes"] = [f"({count}, {shape})"]
    archive.track_and_add_endpoint("answer", model, [images], jax2tf_kwargs=options)
    archive.write_out(str(path), verbose=False)
    return tf.saved_model.load(str(path))


def load(path, output):
    """Load the signature that returns `output`; see `ExportFormat`.

    By default it returns `logits` or `values`, or else `features`. A signature that
    takes encoded images is preferred, then one for preprocessed images, then one for uint8 images.
    """
    loaded = tf.saved_model.load(str(path.parent))
    signatures = {}
    for name in ("logits", "values", "features") if output is None else (output,):
        for key, function in loaded.signatures.items():
            ((argument, spec),) = function.structured_input_signature[1].items()
            if name in function.structured_outputs and argument in ("image_bytes", "images"):
                signatures.setdefault(spec.dtype, (key, argument, spec.shape, name))
        if signatures:
            break
    else:
        raise ValueError(f"no signature takes images and returns {output or 'logits'}")
    dtypes = [tf.string, tf.float32, tf.uint8]
    # Only images of three channels are decoded in the graph as in datasets.
    if tf.float32 in signatures and signatures[tf.float32][2][-1] != 3:
        dtypes = [tf.float32]
    dtype = next(dtype for dtype in dtypes if dtype in signatures)
    key, argument, shape, name = signatures[dtype]
    # If the input is encoded images, only the outputs have the batch size in their shapes.
    batch_size = loaded.signatures[key].structured_outputs[name].shape[0]

    def run(images):
        # Keep a reference to `loaded`: its signatures work only while it exists.
        outputs = loaded.signatures[key](**{argument: tf.constant(images)})
        if "is_bad" in outputs and np.any(outputs["is_bad"]):
            raise ValueError("The export cannot decode an image")
        return {name: outputs[name]}

    if dtype == tf.uint8:
        # One request cannot contain images of different sizes.
        return lambda files: run(np.stack([decode(files[0])] * (batch_size or 1))), None, 1
    return run, None if dtype == tf.string else tuple(shape[1:]), batch_size
