"""The table of export formats, and the layout of an export's directory.

`DIRECTORY/VERSION/` holds the file of its format, `model.json`, and `assets/labels.txt`. The table
needs neither Keras nor TensorFlow: the module of a format is imported when it is used.
"""

import contextlib
import dataclasses
import importlib
import pathlib
from collections.abc import Mapping

SIGNATURES = ("bytes", "uint8", "float", "features")
USUAL_SIGNATURES = ("bytes", "uint8", "float")
# The limit of Protocol Buffers and FlatBuffers, less some room for the graph.
MAX_BYTES = 2**31 - 2**26
# In the assets folder of SavedModels.
LABELS = "assets/labels.txt"
METADATA_FILE = "model.json"


@contextlib.contextmanager
def requiring_extra(extra):
    """If an import fails, raise an error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        rule = f"This needs pip install 'keras-vit-zoo[{extra}]'"
        raise ImportError(f"{rule}. Received: {error}") from error


@dataclasses.dataclass(frozen=True)
class Precision:
    """One choice of `quantize` for a format.

    Args:
        dtype: dtype in which the weights must be finite.
        needs_images: whether calibration images are needed to measure the activations' ranges.
    """

    dtype: str = "float32"
    needs_images: bool = False


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A format of exports.

    Most formats take preprocessed images, and return logits or features. Formats with signatures
    also decode and preprocess images, for TF Serving.

    Args:
        name: value of `format`, and name of the extra with its packages (not for `saved_model`).
        file_name: name of the file in a version's directory that identifies the format.
        module: name of the module with two functions:
            `write(model, path, scratch, **settings)` writes the file `path` and perhaps others next
            to it, with temporary files in the directory `scratch`. `settings` are `quantize` and
            `images` (float32, or `None`), or the settings of `saved_model.write`.
            `load(path, output)` returns `(run, image_shape, batch_size)`: `run` maps float32 images
            `(n, height, width, 3)`, n > 0, to a dictionary of arrays. An `image_shape` of `None`
            stands for a list of encoded images, and a `batch_size` of `None` for any n.
        has_signatures: whether the format answers requests with encoded images.
        precisions: the choices of `quantize`, a dictionary from names to `Precision`.
        max_bytes: greatest size of the weights in float32; `None` for no limit.
    """

    name: str
    file_name: str
    module: str
    has_signatures: bool = False
    precisions: Mapping[str, Precision] = dataclasses.field(default_factory=dict)
    max_bytes: int | None = None

    @property
    def implementation(self):
        """The module of the format."""
        return importlib.import_module(self.module)


_HALF = {"float16": Precision(dtype="float16")}
_CALIBRATED = {"int8": Precision(needs_images=True)}
_ROWS = (
    ExportFormat("saved_model", "saved_model.pb", f"{__name__}.saved_model", has_signatures=True),
    ExportFormat("onnx", "model.onnx", f"{__name__}.onnx", precisions={**_CALIBRATED, **_HALF}),
    ExportFormat(
        "litert",
        "model.tflite",
        f"{__name__}.litert",
        precisions={"int8": Precision(), **_HALF},
        max_bytes=MAX_BYTES,
    ),
    ExportFormat(
        "openvino",
        "model.xml",
        f"{__name__}.openvino",
        precisions={**_CALIBRATED, **_HALF, "bfloat16": Precision(dtype="bfloat16")},
    ),
)
# To add a format, add a module to this folder and a row here.
FORMATS = {row.name: row for row in _ROWS}


def format_of(version):
    """Return the `ExportFormat` of a version, or `None` for a directory without a model."""
    rows = (row for row in FORMATS.values() if (version / row.file_name).is_file())
    return next(rows, None)


def write_labels(version, class_names):
    """Write the names of the classes, one per line, and return the path of the file."""
    path = version / LABELS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}\n" for name in class_names), encoding="utf-8")
    return path


def version_folders(directory):
    """Return a sorted list of the numbers and paths of the versions in a directory."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted((int(entry.name), entry) for entry in entries if entry.name.isdecimal())


def find_export(path):
    """Return the directory of the version of an export at a path, or `None` for other paths.

    Args:
        path: path of a version, of a file that identifies its format, or of a directory of
            versions, for its newest version.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_file() and any(path.name == row.file_name for row in FORMATS.values()):
        return path.parent
    if format_of(path):
        return path
    # As in TF Serving, "007" is version 7, and if the newest version is broken, none is used.
    versions = version_folders(path)
    if not any(format_of(folder) for _, folder in versions):
        return None
    newest = [folder for number, folder in versions if number == versions[-1][0]]
    if len(newest) > 1 or not format_of(newest[0]):
        raise ValueError(
            "The newest version of an export must be one directory with "
            f"{', '.join(row.file_name for row in FORMATS.values())}; to use another version, give "
            f"its path. Received: {', '.join(map(str, newest))}"
        )
    return newest[0]
