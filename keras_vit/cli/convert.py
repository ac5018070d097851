"""`keras-vit convert`."""

import dataclasses
import logging
import os
import pathlib
from typing import Annotated, Literal

import tyro

Format = Literal[
    "keras", "google", "big_vision", "big_transfer", "timm", "huggingface", "saved_model"
]
DIRECTORIES = ("timm", "huggingface", "saved_model")
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
    overwrite: bool = False
    """Replace the target if it exists, also in the directory of a training run. Each saved_model is
    a new version and replaces nothing."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Converts, and says what was written."""
        from keras_vit.checkpoints import from_checkpoint, save_checkpoint
        from keras_vit.checkpoints.archives import normalisation_next_to
        from keras_vit.checkpoints.catalog.download import find_file
        from keras_vit.serving.export import export
        from keras_vit.training.runs.run import find_model
        from keras_vit.training.runs.saved_models import save_model

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
        path, target = find_model(self.source), self.target.expanduser()
        # Before a model is downloaded.
        check_target(path, target, to, self.overwrite)
        source = path if path.suffix == ".keras" else self.source
        model = from_checkpoint(
            source, self.num_classes, as_image_size(self.image_size), self.num_heads
        )
        if self.to is None and to == "google":
            to = npz_format(model)
        class_names = None
        if self.num_classes is None:
            # Files record only names that are known.
            class_names = class_names_of(model, source, is_guessing=to == "saved_model")
        written = target
        if to == "keras":
            written.parent.mkdir(parents=True, exist_ok=True)
            save_model(model, written, {"run": None, "class_names": class_names})
        elif to == "saved_model":
            written = export(model, written, class_names=class_names)
        else:
            known = None if path.suffix == ".keras" else normalisation_next_to(find_file(source))
            options = {} if known is None else {"normalization": known}
            save_checkpoint(model, written, to, class_names, **options)
        print(f"Wrote {written} ({to}): {model.name}, {model.count_params():,} parameters")


def check_target(source, target, to, overwrite):
    """Raise an error if writing the target would replace something that must stay.

    Args:
        source: `pathlib.Path` of the model's file or directory; it need not exist.
        target: `pathlib.Path` of the file or directory to write.
        to: a `Format`.
        overwrite: whether files other than those of the source may be replaced.

    Raises:
        ValueError: if the target is the source, or, without `overwrite`, if it exists or is in the
            directory of a training run.
    """
    from keras_vit.checkpoints.catalog.download import FILES_OF_DIRECTORY, files_of

    is_replacing = to != "saved_model"
    is_weights_alone = to in ("timm", "huggingface") and target.suffix == ".safetensors"
    is_directory = to in DIRECTORIES and not is_weights_alone
    written = [target / name for name in FILES_OF_DIRECTORY] if is_directory else [target]
    read = files_of(source)
    if is_replacing and any(_is_same(new, old) for new in written for old in read):
        raise ValueError(
            "`target` must not be what the model is read from, which would be lost. "
            f"Received: {str(target)!r} from {str(source)!r}"
        )
    if overwrite and is_replacing:
        return
    unless = ", unless `--overwrite` is given" if is_replacing else ""
    if ((target if is_directory else target.parent) / "run.json").exists():
        raise ValueError(
            f"`target` must not be in the directory of a training run{unless}. "
            f"Received: {str(target)!r}"
        )
    exists = any(target.glob("*")) if target.is_dir() else os.path.lexists(target)
    if is_replacing and exists:
        raise ValueError(
            f"`target` must be new{unless}. Received: {str(target)!r}, which already exists"
        )


def _is_same(path, other):
    if path.resolve() == other.resolve():
        return True
    # On disks where names that differ by case are the same.
    return path.exists() and other.exists() and path.samefile(other)


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


def class_names_of(model, source, is_guessing=True):
    """The names of a model's classes: those of its files or run, or ImageNet's for so many.

    Args:
        model: the model.
        source: what it was loaded from: a path, an address or a name.
        is_guessing: whether to take ImageNet's names, with a warning, for a source that is neither
            a name of the catalog nor one of AugReg.

    Returns:
        A list of names, or `None`.
    """
    from keras_vit.checkpoints.class_names import read_class_names
    from keras_vit.data.labels import LABEL_FILES, imagenet_class_names
    from keras_vit.training.runs import saved_models
    from keras_vit.training.runs.run import find_model

    path, num_classes = find_model(source), model.output_shape[-1]
    if path.suffix == ".keras":
        return saved_models.recorded_class_names(path, num_classes)
    if all(layer.name != "head" for layer in model.layers):
        return None
    recorded = read_class_names(source, num_classes)
    if recorded is not None or num_classes not in LABEL_FILES:
        return recorded
    if not _is_published_name(str(source)):
        if not is_guessing:
            return None
        logging.getLogger("keras_vit").warning(
            "%s does not record the names of its classes: as there are %d, they are taken to be "
            "ImageNet's",
            *(source, num_classes),
        )
    return imagenet_class_names(num_classes)


def _is_published_name(source):
    """Whether a model was asked for by a name of the catalog or of AugReg, not by a place."""
    from keras_vit.checkpoints.catalog import CHECKPOINTS
    from keras_vit.checkpoints.catalog.augreg import parse_augreg

    if any(source == row.name for row in CHECKPOINTS):
        return True
    try:
        parse_augreg(source)
    except ValueError:
        return False
    return "/" not in source and not pathlib.Path(source).exists()
