"""ONNX models in int8 and float16, by the tools of ONNX Runtime.

Temporary files are written next to the float32 file. `is_large` is whether its weights are in a
file of their own.
"""


def in_int8(path, images, is_large):
    """Return a model with the products of activations and weights in int8.

    Products of activations with each other, as in attention, stay float32: they take little of
    the time, and would cause most of the error.
    """
    import onnx
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
        # CPUs of x86 multiply unsigned activations faster.
        activation_type=QuantType.QUInt8,
        use_external_data_format=is_large,
    )
    return onnx.load(quantized)


def in_float16(path, is_large):
    """Return a model in float16, except its input, its output and what would overflow.

    Normalizations compute squares of values that can exceed 255 in large models. They stay float32,
    as does the softmax, like under Keras's mixed precision.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    prepared = _prepare(path, is_large)
    graph = onnx.load(prepared, load_external_data=False).graph
    kept = [node.name for node in graph.node if "norm" in node.name or node.op_type == "Softmax"]
    # Shapes of a large model can only be inferred from a path.
    model = convert_float_to_float16(str(prepared), keep_io_types=True, node_block_list=kept)
    # If two nodes that stay float32 share an input, it is converted twice under the same name.
    nodes = {node.output[0]: node for node in model.graph.node}
    del model.graph.node[:]
    model.graph.node.extend(nodes.values())
    # Values between two such nodes would pass through float16.
    result = OnnxModel(model)
    result.remove_cascaded_cast_nodes()
    result.topological_sort()
    return result.model


class ImageReader:
    """Hand images to ONNX Runtime's calibration, one at a time."""

    def __init__(self, images):
        self.batches = iter(images[:, None])

    def get_next(self):
        """Return the next input, `None` after the last."""
        image = next(self.batches, None)
        return None if image is None else {"images": image}


def _prepare(path, is_large):
    """Write a file next to an ONNX file in which what depends only on weights is precomputed.

    This includes BiT's standardized kernels, whose variances float16 cannot represent.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = path.with_name("prepared.onnx")
    # Symbolic shapes are not needed, and inferring them takes a model of less than 2 GB.
    quant_pre_process(
        str(path),
        str(prepared),
        skip_symbolic_shape=True,
        save_as_external_data=is_large,
        all_tensors_to_one_file=True,
    )
    return prepared
