"""Predictions from the files of other runtimes."""

import importlib.util
import os
import pathlib

import numpy as np

from keras_vit.core.pixels import check_floats, check_range, value_range
from keras_vit.serving.quantization import PRECISION


def load_runner(path):
    """A function that computes logits with a file's own runtime, on the CPU.

    Args:
        path: of a file that `write_onnx`, `write_litert` or `write_openvino` wrote: `.onnx`,
            `.tflite` or `.xml`.

    Returns:
        A function of preprocessed images, float32 `(n, height, width, 3)` in [-1, 1], of any n,
        that returns logits, float32 `(n, num_classes)`, both of them NumPy arrays.

    Raises:
        ValueError: if the file is of another kind, missing or damaged, or a package is missing.

    Example:
    >>> from keras_vit.serving.formats import write_onnx
    >>> model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    >>> run = load_runner(write_onnx(model, tmp_path))
    >>> run(np.zeros((2, 32, 32, 3), "float32")).shape
    (2, 3)
    """
    path = pathlib.Path(path).expanduser()
    if path.suffix not in LOADERS:
        raise ValueError(f"`path` must end with {', '.join(LOADERS)}. Received: path={str(path)!r}")
    load, package, extra = LOADERS[path.suffix]
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"`path` needs {package.replace('_', '-')}: pip install 'keras-vit[{extra}]'. "
            f"Received: path={str(path)!r}"
        )
    try:
        run, image_shape, num_classes = load(path)
    # Each runtime has exceptions of its own, and some none.
    except Exception as error:
        raise ValueError(
            f"`path` must be a complete {path.suffix} file of one input and one output, of "
            "`keras_vit.export`. "
            f"Received: path={str(path)!r} ({_first_line(error)})"
        ) from error

    return Runner(run, image_shape, num_classes)


class Runner:
    """What `load_runner` returns.

    Args:
        run: function of a batch of images with at least one.
        image_shape: `(height, width, 3)` of its images.
        num_classes: how many logits there are.
    """

    def __init__(self, run, image_shape, num_classes):
        self.image_shape = image_shape
        self._run = run
        self._num_classes = num_classes

    def __call__(self, images):
        images = np.asarray(images)
        check_floats(images)
        images = images.astype("float32", copy=False)
        if images.ndim != 4 or images.shape[1:] != self.image_shape:
            raise ValueError(
                f"`images` must be an array (n, {', '.join(map(str, self.image_shape))}). "
                f"Received: an array {images.shape}"
            )
        check_range(value_range(images))
        if not len(images):
            return np.zeros((0, self._num_classes), "float32")
        return np.array(self._run(images), "float32")


def _first_line(error):
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _load_onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (images,), (logits,) = session.get_inputs(), session.get_outputs()

    def run(batch):
        return session.run(None, {images.name: batch})[0]

    return run, tuple(images.shape[1:]), logits.shape[1]


def _load_litert(path):
    from ai_edge_litert.interpreter import Interpreter

    # By default it takes one thread.
    interpreter = Interpreter(str(path), num_threads=os.cpu_count())
    answer = interpreter.get_signature_runner()
    (name, images), (_, logits) = (
        *answer.get_input_details().items(),
        *answer.get_output_details().items(),
    )

    def run(batch):
        (result,) = answer(**{name: batch}).values()
        return result

    image_shape = tuple(int(size) for size in images["shape_signature"][1:])
    return run, image_shape, int(logits["shape_signature"][1])


def _load_openvino(path):
    import openvino as ov

    model = ov.Core().read_model(path)
    # On CPUs that have it, OpenVINO would take bfloat16 for a float32 model too.
    precision = model.get_rt_info(PRECISION).value if model.has_rt_info(PRECISION) else "f32"
    compiled = ov.compile_model(model, "CPU", {PRECISION[-1]: precision})
    (images,), (logits,) = compiled.inputs, compiled.outputs

    def run(batch):
        return compiled(batch)[0]

    image_shape = tuple(images.partial_shape[axis].get_length() for axis in (1, 2, 3))
    return run, image_shape, logits.partial_shape[1].get_length()


LOADERS = {
    ".onnx": (_load_onnx, "onnxruntime", "onnx"),
    ".tflite": (_load_litert, "ai_edge_litert", "litert"),
    ".xml": (_load_openvino, "openvino", "openvino"),
}
