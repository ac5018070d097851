"""ONNX: the file `model.onnx`, for ONNX Runtime and others."""

from keras_vit.serving.formats.base import MAX_BYTES, ExportFormat, Precision, float32_bytes

# The newest whose operations tf2onnx knows.
OPSET = 18
# Smaller tensors, such as shapes, stay in the graph, where runtimes need them.
SMALL_BYTES = 1024


def write(model, path, scratch, quantize, images):
    """Write a model as an ONNX file; the arguments are those of `ExportFormat.write`.

    If the weights take more than `MAX_BYTES`, they are in `model.onnx.data`.
    """
    from keras_vit.serving.formats.graph import portable
    from keras_vit.serving.formats.onnx_precision import in_float16, in_int8

    # For one image, BiT in int8 takes ONNX Runtime 27 ms with products and 40 without. In float32
    # it is faster without.
    converted = convert(portable(model), scratch, sums_by_matmul=quantize == "int8")
    if quantize is not None:
        exact = scratch / "float32.onnx"
        save(converted, exact)
        is_large = float32_bytes(model) > MAX_BYTES
        is_int8 = quantize == "int8"
        converted = in_int8(exact, images, is_large) if is_int8 else in_float16(exact, is_large)
    save(converted, path)


def convert(model, scratch, sums_by_matmul=False):
    """Convert a result of `portable` to an `onnx.ModelProto` from `images` to `logits`.

    `sums_by_matmul` is that of `write_graph`.

    The weights join the graph after the conversion: tf2onnx would copy them in each of its passes,
    and take forty times the memory of the model.
    """
    import onnx
    import tensorflow as tf
    import tf2onnx
    from keras import ops

    from keras_vit.serving.formats.graph import SIGNATURE, write_graph

    graph = scratch / "graph_without_weights"
    write_graph(model, graph, with_weights=False, sums_by_matmul=sums_by_matmul)
    answer = tf.saved_model.load(graph).signatures[SIGNATURE]
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


def save(model, path):
    """Write an `onnx.ModelProto`; weights beyond `MAX_BYTES` move from it to `<path>.data`."""
    import onnx
    from onnx.external_data_helper import set_external_data

    sizes = [len(tensor.raw_data) for tensor in model.graph.initializer]
    if sum(sizes) > MAX_BYTES:
        weights = path.with_name(f"{path.name}.data")
        with weights.open("wb") as file:
            for tensor, length in zip(model.graph.initializer, sizes, strict=True):
                if length >= SMALL_BYTES:
                    set_external_data(tensor, weights.name, offset=file.tell(), length=length)
                    file.write(tensor.raw_data)
                    tensor.ClearField("raw_data")
    onnx.save(model, path)


def load(path):
    """Load an ONNX file in ONNX Runtime; see `ExportFormat.load`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (images,), (logits,) = session.get_inputs(), session.get_outputs()
    image_shape = tuple(n if isinstance(n, int) else None for n in images.shape[1:])

    def run(batch):
        return session.run(None, {images.name: batch})[0]

    return run, image_shape, logits.shape[1]


ONNX = ExportFormat(
    name="onnx",
    file_name="model.onnx",
    write=write,
    load=load,
    packages=("onnx", "onnxruntime", "tf2onnx"),
    runtime="onnxruntime",
    precisions={"int8": Precision(needs_images=True), "float16": Precision(dtype="float16")},
)
