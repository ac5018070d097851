"""Models as files of the formats that take preprocessed images."""

import functools
import pathlib
import tempfile

from keras_vit.serving.calibration import check_images
from keras_vit.serving.checks import check_model, check_precision
from keras_vit.serving.formats import FORMATS


def write_file(format, model, directory, quantize=None, images=None):
    """Write a model in a format that takes preprocessed images.

    The model's input `images` is float32 `(batch, height, width, 3)` in [-1, 1], of any batch size;
    its output `logits` is float32 `(batch, num_classes)`. Without `quantize` it computes in float32
    under any dtype policy.

    Args:
        format: name of such a format: `"onnx"`, `"litert"` or `"openvino"`.
        model: a classifier of this package that returns logits.
        directory: path of an existing directory.
        quantize: one of the format's precisions, or `None` for float32.
        images: preprocessed images like those that the model will see, float32
            `(n, height, width, 3)`; for precisions that need calibration.

    Returns:
        The `pathlib.Path` of the file. There may be others of the same name next to it: the weights
        of OpenVINO's models, and those of ONNX models of more than 2 GB.
    """
    row = FORMATS[format]
    check_precision(row, quantize)
    check_model(row, model, quantize)
    images = check_images(format, quantize, images, model.inputs[0].shape[1:3])
    directory = pathlib.Path(directory).expanduser()
    if not directory.is_dir():
        raise ValueError(
            f"`directory` must be an existing directory. Received: directory={str(directory)!r}"
        )
    with tempfile.TemporaryDirectory(dir=directory, prefix=".partial.") as folder:
        scratch, written = pathlib.Path(folder, "scratch"), pathlib.Path(folder, "written")
        scratch.mkdir()
        written.mkdir()
        row.write(model, written / row.file_name, scratch, quantize=quantize, images=images)
        for file in written.iterdir():
            file.replace(directory / file.name)
    return directory / row.file_name


WRITERS = {
    name: functools.partial(write_file, name)
    for name, row in FORMATS.items()
    if not row.has_signatures
}
# Names for three of them; a new format needs none.
write_onnx, write_litert, write_openvino = (WRITERS[n] for n in ("onnx", "litert", "openvino"))
