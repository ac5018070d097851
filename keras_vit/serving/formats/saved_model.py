"""A model and its preprocessing as one TensorFlow module, and that as a SavedModel."""

import keras
import numpy as np
import tensorflow as tf

from keras_vit.core.pixels import MAX_NORMALIZED, RULE
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.preprocessing import scale_pixels
from keras_vit.data.images.transforms import evaluation_image, resize
from keras_vit.models.surgery import representation
from keras_vit.serving.labels import write_labels

# Images that are decoded at the same time, where there are threads for it.
_IN_PARALLEL = 16


class ServedModel(tf.Module):
    """What answers requests.

    Args:
        model: a TensorFlow object with weights, whose `answer` is a function from preprocessed
            images `(batch, height, width, 3)` to a dictionary of `logits` and `features`.
        image_size: `(height, width)` of its images.
        class_names: name of each class; they are written beside the model.
        top_k: how many of the most likely classes are named.
        batch_size: images in a request; `None` for any.
        flags_bad_images: whether an image that cannot be decoded is flagged, instead of an error.
        folder: `pathlib.Path` where the file of the names can lie until the model is saved.
    """

    def __init__(self, model, image_size, class_names, top_k, batch_size, flags_bad_images, folder):
        super().__init__(name="served_model")
        # Its variables are saved with what holds it.
        self.model = model
        self.image_size = image_size
        self.batch_size = batch_size
        self.flags_bad_images = flags_bad_images
        self.top_k = top_k
        self.class_names = tf.constant(class_names)
        self.labels = tf.saved_model.Asset(str(write_labels(folder, class_names)))

    def signature(self, name):
        """The function of a signature, for `tf.saved_model.save`.

        Args:
            name: `"bytes"`, `"uint8"`, `"float"` or `"features"`.

        Returns:
            A `tf.function`.
        """
        count = self.batch_size
        # Of strings TensorFlow would not check a number that is fixed here; `_decode` does.
        arguments = {
            "bytes": (self.answer_bytes, (None,), "string", "image_bytes"),
            "uint8": (self.answer_uint8, (count, None, None, 3), "uint8", "images"),
            "float": (self.answer_float, (count, *self.image_size, 3), "float32", "images"),
            "features": (self.answer_features, (None,), "string", "image_bytes"),
        }
        function, shape, dtype, argument = arguments[name]
        spec = tf.TensorSpec(shape, dtype, name=argument)
        return tf.function(function, input_signature=[spec], autograph=False)

    def answer_bytes(self, image_bytes):
        """Classes of encoded images."""
        images, is_bad = self._decode(image_bytes)
        return self._flagged(self._answer(images), is_bad)

    def answer_uint8(self, images):
        """Classes of images of one size, with values from 0 to 255."""
        return self._answer(scale_pixels(resize(images, self.image_size)))

    def answer_float(self, images):
        """Classes of images as the model takes them, or an error if they cannot be scaled so."""
        # A maximum may pass over NaN.
        sizes = tf.where(tf.math.is_nan(images), np.inf, tf.abs(images))
        largest = tf.reduce_max(sizes)
        refused = tf.debugging.Assert(
            largest <= MAX_NORMALIZED, [f"`images` {RULE}. Received: values up to", largest]
        )
        with tf.control_dependencies([refused]):
            return self._answer(tf.identity(images))

    def _answer(self, images):
        logits = self.model.answer(images)["logits"]
        probabilities = tf.nn.softmax(logits)
        # By the logits, which still differ where two probabilities are both 1.
        classes = tf.math.top_k(logits, self.top_k).indices
        return {
            "logits": logits,
            "probabilities": probabilities,
            "top_k_classes": classes,
            "top_k_labels": tf.gather(self.class_names, classes),
            "top_k_probabilities": tf.gather(probabilities, classes, batch_dims=1),
        }

    def answer_features(self, image_bytes):
        """What the model knows of encoded images before it classifies them."""
        images, is_bad = self._decode(image_bytes)
        return self._flagged({"features": self.model.answer(images)["features"]}, is_bad)

    def _decode(self, image_bytes):
        """Preprocessed images, zeros for those that cannot be decoded; and which these are."""
        image_bytes = tf.ensure_shape(image_bytes, (self.batch_size,))
        count = tf.shape(image_bytes, out_type=tf.int64)[0]
        shape = (*self.image_size, 3)
        found = (
            tf.data.Dataset.from_tensor_slices(image_bytes)
            .enumerate()
            .map(
                lambda number, encoded: (
                    number,
                    evaluation_image(decode(encoded), self.image_size),
                ),
                num_parallel_calls=_IN_PARALLEL,
            )
            .ignore_errors()
            # Of images that are all bad there would be no batch.
            .concatenate(tf.data.Dataset.from_tensors((count, tf.zeros(shape))))
        )
        numbers, images = found.batch(count + 1).get_single_element()
        places = numbers[:, None]
        rows = tf.stack([count + 1, *shape])
        images = tf.scatter_nd(places, images, rows)[:count]
        is_good = tf.scatter_nd(places, tf.ones_like(numbers), [count + 1])[:count]
        images = tf.ensure_shape(images, (self.batch_size, *shape))
        return images, tf.ensure_shape(tf.equal(is_good, 0), (self.batch_size,))

    def _flagged(self, outputs, is_bad):
        """The outputs with zeros for bad images and a flag, or an error that has their indices."""
        if not self.flags_bad_images:
            message = "Images that cannot be decoded, by their index in the batch:"
            refused = tf.debugging.Assert(
                ~tf.reduce_any(is_bad), [message, tf.where(is_bad)[:, 0]], summarize=100
            )
            with tf.control_dependencies([refused]):
                return {name: tf.identity(output) for name, output in outputs.items()}
        zeros = {name: tf.zeros_like(output) for name, output in outputs.items()}
        kept = {
            name: tf.where(is_bad[:, None], zeros[name], output) for name, output in outputs.items()
        }
        return {**kept, "is_bad": is_bad}


def write_saved_model(
    model, folder, signatures, class_names, top_k=5, batch_size=None, flags_bad_images=False
):
    """Writes a SavedModel.

    Args:
        model: a classifier of this package that returns logits.
        folder: `pathlib.Path` of an empty directory, for this and for what it takes to make it.
        signatures: names for `ServedModel.signature`; the first is `serving_default`.
        class_names: as in `ServedModel`, and so are all that follow.
        top_k: how many classes are named.
        batch_size: images in a request.
        flags_bad_images: whether bad images are flagged.

    Returns:
        The path of the SavedModel, a directory in the folder.
    """
    served = ServedModel(
        _in_tensorflow(model, folder / "model", batch_size),
        model.input_shape[1:3],
        class_names,
        min(top_k, len(class_names)),
        batch_size,
        flags_bad_images,
        folder,
    )
    names = ("serving_default", *signatures[1:])
    functions = [served.signature(name) for name in signatures]
    path = folder / "saved_model"
    tf.saved_model.save(
        served,
        str(path),
        signatures=dict(zip(names, functions, strict=True)),
        # Nobody trains it, and what JAX has exported has none that can be saved again.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    return path


def _in_tensorflow(model, path, batch_size):
    """An object of TensorFlow that has the model's weights, and a function `answer` of images."""
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    outputs = {
        "logits": as_float32(model.outputs[0]),
        "features": as_float32(representation(model, ("head",))),
    }
    answering = keras.Model(model.input, outputs)
    images = tf.TensorSpec((batch_size, *model.input_shape[1:]), "float32", name="images")
    if keras.backend.backend() == "jax":
        return _from_jax(answering, images, path)
    made = tf.Module()
    made.weights = [weight.value for weight in model.weights]
    made.answer = tf.function(
        lambda images: answering(images, training=False), input_signature=[images], autograph=False
    )
    return made


def _from_jax(model, images, path):
    """The same by Keras's archive, which knows how to bring JAX to TensorFlow.

    It leaves the model among the signatures, hence the detour over a file.
    """
    archive = keras.export.ExportArchive()
    # By default JAX writes a model for the kind of device that it runs on itself.
    platforms = {"native_serialization_platforms": ("cpu", "cuda")}
    archive.track_and_add_endpoint("answer", model, [images], jax2tf_kwargs=platforms)
    archive.write_out(str(path), verbose=False)
    return tf.saved_model.load(str(path))
