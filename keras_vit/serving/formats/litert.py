"""LiteRT (formerly TensorFlow Lite): the file `model.tflite`."""

import os

from keras_vit.serving.formats.base import MAX_BYTES, ExportFormat, Precision


def write(model, path, scratch, quantize, images):
    """Write a model as a LiteRT file; the arguments are those of `ExportFormat.write`.

    In int8 the weights are int8, and the ranges of the activations are measured in each call. With
    ranges that are measured beforehand, LayerNorm and softmax would be in int8 too, and less
    accurate.
    """
    import tensorflow as tf

    from keras_vit.serving.formats.graph import portable, write_graph

    write_graph(portable(model), scratch / "graph")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(scratch / "graph"))
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def load(path):
    """Load a LiteRT file; see `ExportFormat.load`."""
    from ai_edge_litert.interpreter import Interpreter

    # The default is one thread.
    interpreter = Interpreter(str(path), num_threads=os.cpu_count())
    answer = interpreter.get_signature_runner()
    ((name, images),) = answer.get_input_details().items()
    (logits,) = answer.get_output_details().values()

    def run(batch):
        (result,) = answer(**{name: batch}).values()
        return result

    image_shape = tuple(int(n) if n > 0 else None for n in images["shape_signature"][1:])
    return run, image_shape, int(logits["shape_signature"][1])


LITERT = ExportFormat(
    name="litert",
    file_name="model.tflite",
    write=write,
    load=load,
    runtime="ai_edge_litert",
    precisions={"int8": Precision(), "float16": Precision(dtype="float16")},
    max_bytes=MAX_BYTES,
)
