"""`keras-vit convert`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

Format = Literal[
    "keras", "google", "big_vision", "big_transfer", "timm", "huggingface", "saved_model"
]
SUFFIXES = {".keras": "keras", ".npz": "google", ".safetensors": "timm"}


@dataclasses.dataclass
class Convert:
    """Write a checkpoint in the format of another project, or for TF Serving.

    Example: keras-vit convert ViT_B16/augreg_imagenet21k flowers.keras --num-classes 5
    """

    source: Annotated[str, tyro.conf.Positional]
    """A file (.npz, .safetensors, .keras), a directory with model.safetensors and config.json, a
    run's directory, an address (https, gs), or a name of `keras-vit checkpoints` or of AugReg."""
    target: Annotated[pathlib.Path, tyro.conf.Positional]
    """The file or, for timm, huggingface and saved_model, the directory to write."""
    to: Format | None = None
    """The format; by default that of the target's suffix (.keras, .npz for google or, for a BiT,
    big_transfer, .safetensors for timm)."""
    num_classes: int | None = None
    """Drop the head for a new one of so many classes, at zero; 0 for none."""
    image_size: tuple[int, ...] | None = None
    """Resize the position embeddings for this image size: one number, or height and width."""
    num_heads: int | None = None
    """Attention heads, for a .safetensors file without its config.json."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Converts, and says what was written."""
        from keras_vit.checkpoints import from_checkpoint, save_checkpoint
        from keras_vit.serving.export import export
        from keras_vit.training.run import find_model, save_model

        to = self.to or SUFFIXES.get(self.target.suffix)
        if to is None:
            raise ValueError(
                "`--to` must be given where the target's suffix does not tell the format. "
                f"Received: {str(self.target)!r} and no --to"
            )
        if to == "keras" and self.target.suffix != ".keras":
            raise ValueError(
                f"`target` must end with .keras for `--to keras`. Received: {str(self.target)!r}"
            )
        path = find_model(self.source)
        source = path if path.suffix == ".keras" else self.source
        model = from_checkpoint(
            source, self.num_classes, as_image_size(self.image_size), self.num_heads
        )
        if self.to is None and to == "google":
            to = npz_format(model)
        class_names = class_names_of(model, source) if self.num_classes is None else None
        written = self.target
        if to == "keras":
            written.parent.mkdir(parents=True, exist_ok=True)
            save_model(model, written)
        elif to == "saved_model":
            written = export(model, written, class_names=class_names)
        else:
            save_checkpoint(model, written, to)
        print(f"Wrote {written} ({to}): {model.name}, {model.count_params():,} parameters")


def npz_format(model):
    """Which of Google's projects has such models."""
    from keras_vit.models.describe import describe

    options = describe(model)
    if "stages" not in options:
        return "google"
    return "big_transfer" if options["preactivation"] else "big_vision"


def as_image_size(numbers):
    """One number or two from the command line as the functions take them."""
    if numbers is not None and len(numbers) not in (1, 2):
        raise ValueError(
            f"`--image-size` must be one number, or height and width. Received: {numbers}"
        )
    return numbers[0] if numbers is not None and len(numbers) == 1 else numbers


def class_names_of(model, source):
    """The names of a model's classes: its run's, or ImageNet's for a checkpoint of so many."""
    from keras_vit.data.labels import LABEL_FILES, read_labels
    from keras_vit.training.run import find_model, read_run

    path = find_model(source)
    if path.suffix == ".keras":
        return read_run(path).get("class_names")
    num_classes = model.output_shape[-1]
    if num_classes not in LABEL_FILES:
        return None
    return [name for _, name in read_labels(num_classes)]
