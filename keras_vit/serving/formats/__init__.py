"""The table of export formats, and the layout of an export's directory.

`DIRECTORY/VERSION/` contains a model file such as `model.onnx`, `model.json` and
`assets/labels.txt`. Importing this module imports neither Keras nor TensorFlow: the module that
writes and loads a format is imported at the first use.
"""

import contextlib
import dataclasses
import importlib
import pathlib
from collections.abc import Mapping

SIGNATURES = ("bytes", "uint8", "float", "features")
USUAL_SIGNATURES = ("bytes", "uint8", "float")
# Signatures that take encoded images, and the numbers of channels that they can have.
ENCODED_SIGNATURES = ("bytes", "features")
ENCODED_CHANNELS = (1, 3, 4)
# Protocol Buffers and FlatBuffers hold at most 2 GiB; 64 MiB are left for the graph.
MAX_BYTES = 2**31 - 2**26
# SavedModels store additional files in `assets`.
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
        dtype: dtype in which no weight may overflow.
        needs_images: whether calibration images are needed to measure the ranges of activations.
    """

    dtype: str = "float32"
    needs_images: bool = False


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """An export format.

    Exports take preprocessed images, and return logits or features. In a format with signatures,
    they can also decode and preprocess images, for TF Serving.

    Args:
        name: value of `format`. For formats other than `saved_model`, the extra of the same name
            installs the required packages.
        file_name: name of the file in a version's directory that identifies the format.
        module: name of the module with two functions:
            `write(model, path, scratch, **settings)` writes the file `path`, and may write others
            next to it and temporary files in the directory `scratch`. `settings` are `quantize` and
            `images` (calibration images, float32, or `None`), or those of `saved_model.write`.
            `load(path, output)` returns `(run, image_shape, batch_size)`: the function `run` maps
            float32 images `(batch_size, *image_shape)` to a dictionary of arrays. If `batch_size`
            is `None`, `run` takes one image or more. If `image_shape` is `None`, `run` takes a list
            of encoded images. `output` is `"logits"`, `"features"`, or `None` for the default.
        has_signatures: whether the format has the signatures of `keras_vit.export`.
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
_FORMATS = (
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
# To add a format, add a module to this folder and an entry to `_FORMATS`.
FORMATS = {each.name: each for each in _FORMATS}


def format_of(version):
    """Return the `ExportFormat` of a version, or `None` for a directory without a model."""
    found = (each for each in FORMATS.values() if (version / each.file_name).is_file())
    return next(found, None)


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
    """Return the directory of an export's version, or `None` if a path is not an export.

    Args:
        path: path of a version, of its model file, or of a directory of versions; the newest
            version is then returned.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_file() and any(path.name == each.file_name for each in FORMATS.values()):
        return path.parent
    if format_of(path):
        return path
    # As in TF Serving, "007" is version 7, and a broken newest version is an error.
    versions = version_folders(path)
    if not any(format_of(folder) for _, folder in versions):
        return None
    newest = [folder for number, folder in versions if number == versions[-1][0]]
    if len(newest) > 1 or not format_of(newest[0]):
        raise ValueError(
            "The newest version of an export must be one directory with one of the files "
            f"{', '.join(each.file_name for each in FORMATS.values())}. To use another version, "
            f"pass the path of that version. Received: {', '.join(map(str, newest))}"
        )
    return newest[0]
