"""Files of other runtimes in fewer bits, by the tools that come with each runtime."""

import logging

import numpy as np

from keras_vit.core.pixels import check_pixels

QUANTIZATIONS = {
    "onnx": ("int8", "float16"),
    "litert": ("int8", "float16"),
    "openvino": ("int8", "float16", "bfloat16"),
}
FEWEST_IMAGES = 10
# A range of pixel values in [-1, 1]: 3 of 256 levels.
LEAST_CONTRAST = 0.025
NEEDS_IMAGES = {("onnx", "int8"), ("openvino", "int8")}
# Where an OpenVINO file says what it is to be computed in.
PRECISION = ["runtime_options", "INFERENCE_PRECISION_HINT"]


def check_choice(format_name, quantize):
    """Raises `ValueError` if no tool quantises the format so.

    Example:
    >>> check_choice("onnx", "bfloat16")
    Traceback (most recent call last):
    ValueError: `quantize` must be one of 'int8', 'float16' for onnx, or None. Received: ...
    """
    choices = QUANTIZATIONS[format_name]
    if quantize is not None and quantize not in choices:
        raise ValueError(
            f"`quantize` must be one of {', '.join(map(repr, choices))} for {format_name}, "
            f"or None. Received: quantize={quantize!r}"
        )


def check_images(format_name, quantize, images, image_size, argument="images"):
    """The calibration images as a float32 array, `None` where the tool needs none.

    Args:
        format_name: a key of `QUANTIZATIONS`.
        quantize: of `write_onnx` and its like.
        images: of `write_onnx` and its like.
        image_size: `(height, width)` of the model's images.
        argument: what the caller knows the images as.

    Raises:
        ValueError: if they are not such images.
    """
    if (format_name, quantize) not in NEEDS_IMAGES:
        return None
    shape = (*image_size, 3)
    rule = (
        f"`{argument}` must be a float32 array (n, {', '.join(map(str, shape))}) of preprocessed "
        f"images to quantise with, for {format_name} in {quantize}. "
    )
    if images is None:
        raise ValueError(f"{rule}Received: {argument}=None")
    array = np.asarray(images)
    if array.dtype.kind != "f" or array.shape[1:] != shape or not len(array):
        raise ValueError(f"{rule}Received: an array {array.shape} of {array.dtype}")
    check_pixels(array, argument)
    return array.astype("float32")


def warn_of_calibration(images):
    """Warn of calibration images that do not show the range of a model's activations.

    Args:
        images: array `(n, height, width, 3)`.
    """
    logger = logging.getLogger("keras_vit")
    if len(images) < FEWEST_IMAGES:
        logger.warning("int8 is calibrated on %d images: use some hundred", len(images))
    constant = int((np.ptp(images, axis=(1, 2, 3)) < LEAST_CONTRAST).sum())
    if constant:
        logger.warning("%d of %d calibration images are almost constant", constant, len(images))


def onnx_in_int8(path, images, is_large):
    """The model of an ONNX file with the products of activations and weights in int8.

    Products of activations with each other, as in attention, stay float32: they take little of
    the time, and most of the error would be theirs.

    Args:
        path: `pathlib.Path` of the float32 file; more files will lie beside it.
        images: to measure the range of the activations with.
        is_large: whether it has its weights beside it.

    Returns:
        An `onnx.ModelProto`.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_static

    prepared, quantized = _prepared(path, is_large), path.with_name("int8.onnx")
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


def _prepared(path, is_large):
    """Beside an ONNX file one where what is computed of weights alone has become a weight.

    The standardised kernels of BiT among them, whose variances float16 cannot hold.
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


class ImageReader:
    """Hands images to ONNX Runtime's calibration, one at a time.

    Args:
        images: float32 array `(n, height, width, 3)`.
    """

    def __init__(self, images):
        self.batches = iter(images[:, None])

    def get_next(self):
        """The next input, `None` after the last."""
        image = next(self.batches, None)
        return None if image is None else {"images": image}


def onnx_in_float16(path, is_large):
    """The model of an ONNX file in float16, but for what would overflow, and its input and output.

    Normalisations take squares, of values that can exceed 255 in large models, and stay float32
    like the softmax: as under Keras's mixed precision.

    Args:
        path: `pathlib.Path` of the float32 file; more files will lie beside it.
        is_large: whether it has its weights beside it.

    Returns:
        An `onnx.ModelProto`.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    prepared = _prepared(path, is_large)
    graph = onnx.load(prepared, load_external_data=False).graph
    kept = [node.name for node in graph.node if "norm" in node.name or node.op_type == "Softmax"]
    # Of a path, because the shapes of a large model can only be inferred so.
    model = convert_float_to_float16(str(prepared), keep_io_types=True, node_block_list=kept)
    # Where two nodes that stay share an input, it is converted twice under the same name.
    nodes = {node.output[0]: node for node in model.graph.node}
    del model.graph.node[:]
    model.graph.node.extend(nodes.values())
    # And between two such nodes values would pass through float16.
    result = OnnxModel(model)
    result.remove_cascaded_cast_nodes()
    result.topological_sort()
    return result.model


def set_litert_options(converter, quantize):
    """Sets what a LiteRT converter does to the weights.

    Int8 weights meet activations that are quantised in each call, by their own range. With ranges
    that were measured before, LayerNorm and softmax would be in int8 too, and less accurate.

    Args:
        converter: a `tf.lite.TFLiteConverter`.
        quantize: `"int8"`, `"float16"` or `None`.
    """
    import tensorflow as tf

    if quantize is None:
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]


def openvino_in_int8(model, images, is_transformer):
    """An OpenVINO model quantised by NNCF, with what it does about outliers in Transformers."""
    import nncf

    return nncf.quantize(
        model,
        nncf.Dataset(images[:, None]),
        subset_size=len(images),
        # Ranges that need not be symmetric; NNCF has it so for Transformers anyway.
        preset=nncf.QuantizationPreset.MIXED,
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
    )


def keep_weights_in_bfloat16(model):
    """Rounds the kernels of an OpenVINO model, and says that it is to be computed in bfloat16."""
    import openvino as ov
    from openvino import opset13

    for node in model.get_ordered_ops():
        is_constant = node.get_type_name() == "Constant"
        if is_constant and node.get_element_type() == ov.Type.f32 and node.data.ndim > 1:
            rounded = opset13.constant(node.data, dtype=ov.Type.bf16)
            restored = opset13.convert(rounded, "f32").output(0)
            for user in node.output(0).get_target_inputs():
                user.replace_source_output(restored)
    model.validate_nodes_and_infer_types()
    model.set_rt_info("bf16", PRECISION)
