"""A model as an ONNX graph, and that as a file."""

from keras import ops

from keras_vit.serving.formats.graph import SIGNATURE, write_graph

# The newest whose operations tf2onnx knows.
OPSET = 18
# Shapes and the like stay in the graph, where runtimes want to know them.
SMALL_BYTES = 1024


def convert_to_onnx(model, scratch):
    """A model as an `onnx.ModelProto`.

    The weights join the graph when it is converted: tf2onnx would copy them in each of its passes,
    and take forty times the memory of the model.

    Args:
        model: what `portable` returned.
        scratch: `pathlib.Path` of an existing directory, for a graph without weights.

    Returns:
        An `onnx.ModelProto` from `images` to `logits`.

    Example:
    >>> from keras_vit.serving.formats.graph import portable
    >>> model = portable(keras_vit.resnet((1,), width=32, num_classes=3, image_size=32))
    >>> [output.name for output in convert_to_onnx(model, tmp_path).graph.output]
    ['logits']
    """
    import onnx
    import tensorflow as tf
    import tf2onnx

    write_graph(model, scratch / "graph_without_weights", with_weights=False)
    answer = tf.saved_model.load(scratch / "graph_without_weights").signatures[SIGNATURE]
    specs = answer.structured_input_signature[1]
    names = ["images", *(f"weight_{index}" for index in range(len(model.trainable_variables)))]

    def positional(*tensors):
        return answer(**dict(zip(names, tensors, strict=True)))

    converted, _ = tf2onnx.convert.from_function(
        tf.function(positional, autograph=False), [specs[name] for name in names], opset=OPSET
    )
    images = next(tensor for tensor in converted.graph.input if tensor.name == "images")
    del converted.graph.input[:]
    converted.graph.input.append(images)
    for tensor in (*converted.graph.input, *converted.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    for name, weight in zip(names[1:], model.trainable_variables, strict=True):
        array = ops.convert_to_numpy(weight)
        converted.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return converted


def save_onnx(model, path, max_bytes):
    """Writes an ONNX model, with its weights in the same file or in one beside it.

    Args:
        model: an `onnx.ModelProto`; a large one is left without its weights.
        path: `pathlib.Path` of the file.
        max_bytes: of weights in the file; if there are more, they go to a file of the same name
            with `.data` behind it.
    """
    import onnx

    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > max_bytes:
        _move_weights(model, path.with_name(f"{path.name}.data"))
    onnx.save(model, path)


def _move_weights(model, path):
    from onnx.external_data_helper import set_external_data

    with path.open("wb") as file:
        for tensor in model.graph.initializer:
            length = len(tensor.raw_data)
            if length < SMALL_BYTES:
                continue
            set_external_data(tensor, path.name, offset=file.tell(), length=length)
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
