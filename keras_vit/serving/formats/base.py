"""What a row of the table of export formats says."""

import dataclasses
from collections.abc import Callable, Mapping

# The limit of Protocol Buffers messages and of FlatBuffers, less some room for the graph.
MAX_BYTES = 2**31 - 2**26


@dataclasses.dataclass(frozen=True)
class Precision:
    """One choice of `quantize` for a format.

    Args:
        dtype: dtype in which the weights must be finite.
        needs_images: whether calibration images are needed to measure the activations' ranges.
        packages: modules that it needs in addition to those of the format.
    """

    dtype: str = "float32"
    needs_images: bool = False
    packages: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A row of the table.

    There are two kinds of formats. Most take preprocessed images and return logits. Those with
    signatures decode and preprocess images themselves, as TF Serving needs it.

    Args:
        name: value of `format`; also the extra that installs `packages` and `runtime`.
        file_name: name of the file in a version's directory that identifies the format.
        write: function `write(model, path, scratch, **settings)`, which writes the file `path` and
            perhaps others next to it. `scratch` is an existing directory for temporary files.
            `settings` are `quantize` and `images` (a float32 array, or `None`); or for a format
            with signatures those of `formats.saved_model.write`.
        load: function of the path of the file that returns `(run, image_shape, num_classes)`; `run`
            maps preprocessed images, float32 `(n, height, width, 3)`, n > 0, to logits. `None` for
            a format with signatures.
        load_encoded: for a format with signatures: function of the path of the file, and of the
            model's `ImageSpec`, that returns a function from a list of encoded images to logits.
        packages: modules that must be installed to write the format.
        runtime: module that must be installed to load it.
        precisions: the choices of `quantize`, a dictionary from names to `Precision`.
        max_bytes: largest size of the weights in float32; `None` for no limit.
        min_classes: least number of classes.
        backends: backends of Keras that can write the format; empty for all.
    """

    name: str
    file_name: str
    write: Callable
    load: Callable | None = None
    load_encoded: Callable | None = None
    packages: tuple[str, ...] = ()
    runtime: str = "tensorflow"
    precisions: Mapping[str, Precision] = dataclasses.field(default_factory=dict)
    max_bytes: int | None = None
    min_classes: int = 1
    backends: tuple[str, ...] = ()

    @property
    def has_signatures(self):
        """Whether the format answers requests with encoded images."""
        return self.load_encoded is not None

    def needs_images(self, quantize):
        """Whether calibration images are needed."""
        return quantize in self.precisions and self.precisions[quantize].needs_images


def float32_bytes(model):
    """Return the size of the model's weights in float32, in bytes."""
    return 4 * model.count_params()
