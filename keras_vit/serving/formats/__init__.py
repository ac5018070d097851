"""Models as files of other runtimes: ONNX, LiteRT and OpenVINO."""

import pathlib
import tempfile

from keras_vit.models.parts import has_blocks
from keras_vit.models.surgery import check_classifier
from keras_vit.models.weights import check_finite
from keras_vit.serving import quantization
from keras_vit.serving.checks import check_packages
from keras_vit.serving.formats.graph import portable, write_graph
from keras_vit.serving.formats.onnx import convert_to_onnx, save_onnx

FILE_NAMES = {"onnx": "model.onnx", "litert": "model.tflite", "openvino": "model.xml"}
# What a message of protocol buffers and a flatbuffer can hold, less some for the graph.
MAX_BYTES = 2**31 - 2**26


def write_onnx(model, directory, quantize=None, images=None):
    """Writes a model as `model.onnx`, for ONNX Runtime.

    The file's input `images` is float32 `(batch, height, width, 3)`, preprocessed, of any batch;
    its output `logits` float32 `(batch, num_classes)`. It computes in float32 under any dtype
    policy. The weights of a model of more than 2 GB lie beside it, in `model.onnx.data`.

    Args:
        model: a classifier of this package that returns logits.
        directory: path of an existing directory.
        quantize: `"int8"`, `"float16"`, or `None` for float32.
        images: for int8, float32 array `(n, height, width, 3)` of preprocessed images such as the
            model will see, to measure the range of its activations with.

    Returns:
        The `pathlib.Path` of the file.

    Raises:
        ValueError: if the model is no classifier of RGB images or has weights that are not finite
            in the file's precision, the directory does not exist, a package is missing, or
            `quantize` and `images` do not go together.

    Example:
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> write_onnx(model, tmp_path).name
    'model.onnx'
    """
    return _write("onnx", _write_as_onnx, model, directory, quantize, images)


def write_litert(model, directory, quantize=None, images=None):
    """Writes a model as `model.tflite`, for LiteRT, which was called TensorFlow Lite.

    Input and output are those of `write_onnx`.

    Args:
        model: a classifier of this package that returns logits, of less than 2 GB in the file.
        directory: path of an existing directory.
        quantize: `"int8"`, `"float16"`, or `None` for float32. Int8 are the weights; the range of
            the activations is measured in each call, so no images are needed.
        images: not used.

    Returns:
        The `pathlib.Path` of the file.

    Raises:
        ValueError: as in `write_onnx`, and if the file would be too large.

    Example:
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> write_litert(model, tmp_path, quantize="float16").name
    'model.tflite'
    """
    return _write("litert", _write_as_litert, model, directory, quantize, images)


def write_openvino(model, directory, quantize=None, images=None):
    """Writes a model as `model.xml` and its weights `model.bin`, for OpenVINO.

    Input and output are those of `write_onnx`.

    Args:
        model: a classifier of this package that returns logits.
        directory: path of an existing directory.
        quantize: `"int8"`, `"float16"`, `"bfloat16"`, or `None` for float32.
        images: for int8, as in `write_onnx`.

    Returns:
        The `pathlib.Path` of `model.xml`.

    Raises:
        ValueError: as in `write_onnx`.

    Example:
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> path = write_openvino(model, tmp_path)
    >>> sorted(file.name for file in tmp_path.iterdir())
    ['model.bin', 'model.xml']
    """
    return _write("openvino", _write_as_openvino, model, directory, quantize, images)


WRITERS = {"onnx": write_onnx, "litert": write_litert, "openvino": write_openvino}


def _write(format_name, write_file, model, directory, quantize, images):
    """Writes the files beside their places and puts them there when all are complete."""
    check_classifier(model)
    image_size = model.inputs[0].shape[1:3]
    quantization.check_choice(format_name, quantize)
    images = quantization.check_images(format_name, quantize, images, image_size)
    check_finite(model, dtype=quantize if quantize in ("float16", "bfloat16") else "float32")
    check_packages(format_name, quantize)
    _check_size(format_name, model)
    directory = pathlib.Path(directory).expanduser()
    if not directory.is_dir():
        raise ValueError(
            f"`directory` must be an existing directory. Received: directory={str(directory)!r}"
        )
    with tempfile.TemporaryDirectory(dir=directory, prefix=".partial.") as scratch:
        scratch, written = pathlib.Path(scratch), pathlib.Path(scratch, "written")
        written.mkdir()
        write_file(portable(model), scratch, written / FILE_NAMES[format_name], quantize, images)
        for file in written.iterdir():
            file.replace(directory / file.name)
    return directory / FILE_NAMES[format_name]


def _check_size(format_name, model):
    if format_name == "litert" and float32_bytes(model) > MAX_BYTES:
        raise ValueError(
            "`format='litert'` holds models of less than 2 GB: choose onnx or openvino. "
            f"Received: a model of {float32_bytes(model) / 2**30:.1f} GB in float32"
        )


def float32_bytes(model):
    """What the model's weights take in float32, in bytes."""
    return 4 * model.count_params()


def _write_as_onnx(model, scratch, path, quantize, images):
    converted = convert_to_onnx(model, scratch)
    if quantize is not None:
        exact = scratch / "float32.onnx"
        save_onnx(converted, exact, MAX_BYTES)
    is_large = float32_bytes(model) > MAX_BYTES
    if quantize == "int8":
        converted = quantization.onnx_in_int8(exact, images, is_large)
    elif quantize == "float16":
        converted = quantization.onnx_in_float16(exact, is_large)
    save_onnx(converted, path, MAX_BYTES)


def _write_as_litert(model, scratch, path, quantize, images):
    import tensorflow as tf

    graph = scratch / "graph"
    write_graph(model, graph)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(graph))
    quantization.set_litert_options(converter, quantize)
    path.write_bytes(converter.convert())


def _write_as_openvino(model, scratch, path, quantize, images):
    import openvino as ov

    graph = scratch / "graph"
    write_graph(model, graph)
    converted = ov.convert_model(str(graph))
    if quantize == "int8":
        is_transformer = has_blocks(model)
        converted = quantization.openvino_in_int8(converted, images, is_transformer)
    elif quantize == "bfloat16":
        quantization.keep_weights_in_bfloat16(converted)
    # By default it would round weights to float16.
    ov.save_model(converted, str(path), compress_to_fp16=quantize == "float16")
