"""The table of export formats, and functions that write a model as a file of one of them.

The table itself needs neither Keras nor TensorFlow.
"""

from keras_vit.serving.formats.litert import LITERT
from keras_vit.serving.formats.onnx import ONNX
from keras_vit.serving.formats.openvino import OPENVINO
from keras_vit.serving.formats.saved_model import SAVED_MODEL

# To add a format, add a file with its row to this folder, and the row here.
FORMATS = {row.name: row for row in (SAVED_MODEL, ONNX, LITERT, OPENVINO)}


def format_of(version):
    """Return the row of the format of a version, `None` for a directory without a model."""
    rows = (row for row in FORMATS.values() if (version / row.file_name).is_file())
    return next(rows, None)


def file_names():
    """Return the names of the files that identify the formats, for error messages."""
    return ", ".join(row.file_name for row in FORMATS.values())
