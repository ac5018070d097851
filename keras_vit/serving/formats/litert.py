"""LiteRT (formerly TensorFlow Lite): the file `model.tflite`."""

import os

import tensorflow as tf

from keras_vit.serving.formats.graph import portable, write_graph


def write(model, path, scratch, quantize, images):
    """Write a model as a LiteRT file; see `ExportFormat`.

    With `quantize="int8"`, the weights are int8 and the ranges of the activations are measured in
    each call. With calibrated ranges, LayerNorm and softmax would be computed in int8, and be less
    accurate.
    """
    write_graph(portable(model), scratch / "graph")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(scratch / "graph"))
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def load(path, output):
    """Load a LiteRT file; see `ExportFormat`."""
    from ai_edge_litert.interpreter import Interpreter

    # By default LiteRT uses one thread.
    interpreter = Interpreter(str(path), num_threads=os.cpu_count())
    answer = interpreter.get_signature_runner()
    ((name, images),) = answer.get_input_details().items()
    image_shape = tuple(int(n) if n > 0 else None for n in images["shape_signature"][1:])
    return lambda batch: answer(**{name: batch}), image_shape, None
