"""Write a model as a TensorFlow graph for the converters to ONNX, LiteRT and OpenVINO."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
from keras import ops

from keras_vit.models.image_model import copy_attributes
from keras_vit.models.structure import group_norms, output_name
from keras_vit.models.surgery import copy_model, with_float_kernels
from keras_vit.models.unused_tokens import without_unused_tokens

SIGNATURE = "serving_default"


@keras.saving.register_keras_serializable("keras_vit")
def gelu_erf(x):
    """Compute GELU with erf. TensorFlow's GELU uses erfc, which ONNX does not have."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5))


@keras.saving.register_keras_serializable("keras_vit")
class UnfusedZeroPadding2D(keras.layers.ZeroPadding2D):
    """Zero padding that ONNX Runtime does not merge with a max-pooling.

    The merged operation would pad with minus infinity (microsoft/onnxruntime#18136), and change
    BiT's logits by 1e-3. ONNX Runtime does not recognize concatenated zeros as padding.
    """

    def call(self, inputs):
        (top, bottom), (left, right) = self.padding
        rows = ops.zeros_like(inputs[:, :1])
        padded = ops.concatenate([rows] * top + [inputs] + [rows] * bottom, axis=1)
        columns = ops.zeros_like(padded[:, :, :1])
        return ops.concatenate([columns] * left + [padded] + [columns] * right, axis=2)


def portable(model):
    """Return a copy of a model that computes in float32, with operations that every format has.

    All weights of the copy are trainable, except the states of random generators.
    """
    copy = copy_model(with_float_kernels(model), _portable_layer, keeps_frozen=False)
    copy_attributes(model, copy)
    copy.trainable = True
    return copy


def _portable_layer(layer):
    config = {**layer.get_config(), "dtype": "float32", "trainable": True}
    if config.get("activation") == "gelu":
        config["activation"] = gelu_erf
    is_padding = type(layer) is keras.layers.ZeroPadding2D
    return (UnfusedZeroPadding2D if is_padding else type(layer)).from_config(config)


def float32_bytes(model):
    """Return the size of the model's weights in float32, in bytes."""
    return 4 * model.count_params()


def write_graph(model, path, with_weights=True, sums_by_matmul=False):
    """Write a model as a SavedModel that a converter can read.

    The only signature maps `images`, float32 `(batch, height, width, channels)`, to the logits or
    the features, float32 `(batch, ...)`. Converters can read TensorFlow's operations, but not the
    XLA call that JAX exports. On other backends, a subprocess that uses TensorFlow writes the
    graph.

    Args:
        model: result of `portable`.
        path: path of the SavedModel's directory, which must not exist.
        with_weights: whether the graph contains the weights. If not, it has inputs `weight_0`,
            `weight_1` ... in the order of `model.trainable_variables`.
        sums_by_matmul: whether GroupNorm computes sums as matrix products, as it does by default
            on the TensorFlow backend. OpenVINO would transpose the images around each product,
            which takes as long as the convolutions.
    """
    options = {"with_weights": with_weights, "sums_by_matmul": sums_by_matmul}
    if keras.backend.backend() == "tensorflow":
        _write_saved_model(model, path, **options)
        return
    with tempfile.TemporaryDirectory(dir=pathlib.Path(path).parent) as scratch:
        file = pathlib.Path(scratch) / "model.keras"
        model.save(file)
        # Hide the accelerator from the subprocess: the parent process is using the accelerator's
        # memory, and a conversion does not need it.
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", __name__, file, path, json.dumps(options)]
        command = [str(part) for part in command]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise RuntimeError(f"TensorFlow could not write the graph:\n{result.stderr}")


def _write_saved_model(model, path, with_weights, sums_by_matmul):
    import tensorflow as tf

    model = without_unused_tokens(model)
    for layer in group_norms(model):
        layer.sums_by_matmul = sums_by_matmul
    images = tf.TensorSpec((None, *model.input_shape[1:]), "float32", name="images")
    if with_weights:
        archive = keras.export.ExportArchive()
        named = keras.Model(model.input, {output_name(model): model.output})
        archive.track_and_add_endpoint(SIGNATURE, named, [images])
        archive.write_out(str(path), verbose=False)
        return
    states = [ops.convert_to_numpy(state) for state in model.non_trainable_variables]

    def answer(images, *weights):
        output, _ = model.stateless_call(weights, states, images, training=False)
        return {output_name(model): output}

    weights = [
        tf.TensorSpec(weight.shape, "float32", name=f"weight_{index}")
        for index, weight in enumerate(model.trainable_variables)
    ]
    function = tf.function(answer, input_signature=[images, *weights], autograph=False)
    tf.saved_model.save(tf.Module(), str(path), signatures={SIGNATURE: function})


if __name__ == "__main__":
    _write_saved_model(keras.models.load_model(sys.argv[1]), sys.argv[2], **json.loads(sys.argv[3]))
