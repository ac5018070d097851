"""ONNX: the file `model.onnx`, for ONNX Runtime and other runtimes."""

import onnx
import tensorflow as tf
from keras import ops

from keras_vit.serving.formats import MAX_BYTES
from keras_vit.serving.formats.graph import SIGNATURE, float32_bytes, portable, write_graph

# The newest opset that tf2onnx supports.
OPSET = 18
# Smaller tensors, such as shapes, stay in the graph, where runtimes need them.
SMALL_BYTES = 1024


def write(model, path, scratch, quantize, images):
    """Write a model as an ONNX file; see `ExportFormat`.

    If the weights take more than `MAX_BYTES`, they are written to `model.onnx.data`.
    """
    # With sums as matrix products, BiT in int8 takes 27 instead of 40 ms per image. In float32 it
    # would be slower.
    converted = convert(portable(model), scratch, sums_by_matmul=quantize == "int8")
    if quantize is not None:
        file = scratch / "float32.onnx"
        save(converted, file)
        is_large = float32_bytes(model) > MAX_BYTES
        is_int8 = quantize == "int8"
        converted = in_int8(file, images, is_large) if is_int8 else in_float16(file, is_large)
    save(converted, path)


def convert(model, scratch, sums_by_matmul=False):
    """Convert a result of `portable` to an `onnx.ModelProto` with the input `images`.

    The weights are added after the conversion. Otherwise tf2onnx would copy them in each of its
    passes, and take forty times the memory of the model. `sums_by_matmul` is as in `write_graph`.
    """
    import tf2onnx

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
    """Write an `onnx.ModelProto`; if its weights exceed `MAX_BYTES`, move them to `<path>.data`."""
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


def in_int8(path, images, is_large):
    """Return a model that multiplies activations and weights in int8.

    Products of activations with each other, as in attention, stay float32: they take little time,
    and would cause most of the error in int8.
    """
    from onnxruntime.quantization import QuantType, quantize_static

    prepared, quantized = _prepare(path, is_large), path.with_name("int8.onnx")
    graph = onnx.load(prepared, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    nodes = [
        node.name
        for node in graph.node
        if node.op_type in ("MatMul", "Gemm", "Conv") and node.input[1] in weights
    ]
    quantize_static(
        prepared,
        quantized,
        ImageReader(images),
        nodes_to_quantize=nodes,
        per_channel=True,
        # x86 CPUs multiply unsigned activations faster.
        activation_type=QuantType.QUInt8,
        use_external_data_format=is_large,
    )
    return onnx.load(quantized)


def in_float16(path, is_large):
    """Return a model in float16, except its input, its output and nodes that would overflow.

    Normalizations square values, which overflow above 255; large models have such values.
    Normalizations and the softmax stay float32, as in Keras's mixed precision.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    prepared = _prepare(path, is_large)
    graph = onnx.load(prepared, load_external_data=False).graph
    exact = [node.name for node in graph.node if "norm" in node.name or node.op_type == "Softmax"]
    # Pass a path: the shapes of a large model cannot be inferred in memory.
    model = convert_float_to_float16(str(prepared), keep_io_types=True, node_block_list=exact)
    # If two float32 nodes share an input, there are two equal nodes that cast it. Remove one.
    nodes = {node.output[0]: node for node in model.graph.node}
    del model.graph.node[:]
    model.graph.node.extend(nodes.values())
    # Remove casts to float16 and back between two float32 nodes.
    result = OnnxModel(model)
    result.remove_cascaded_cast_nodes()
    result.topological_sort()
    return result.model


class ImageReader:
    """Hand images to ONNX Runtime's calibration, one at a time."""

    def __init__(self, images):
        self.batches = iter(images[:, None])

    def get_next(self):
        """Return the input for the next image, or `None` after the last image."""
        image = next(self.batches, None)
        return None if image is None else {"images": image}


def _prepare(path, is_large):
    """Write a copy of an ONNX file in which all nodes that depend only on weights are precomputed.

    These include BiT's standardized kernels, whose variances float16 cannot represent.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = path.with_name("prepared.onnx")
    # Symbolic shapes are not needed, and cannot be inferred for a model of 2 GB or more.
    quant_pre_process(
        str(path),
        str(prepared),
        skip_symbolic_shape=True,
        save_as_external_data=is_large,
        all_tensors_to_one_file=True,
    )
    return prepared


def load(path, output):
    """Load an ONNX file in ONNX Runtime; see `ExportFormat`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (images,) = session.get_inputs()
    names = [node.name for node in session.get_outputs()]
    image_shape = tuple(n if isinstance(n, int) else None for n in images.shape[1:])

    def run(batch):
        return dict(zip(names, session.run(None, {images.name: batch}), strict=True))

    return run, image_shape, None
