"""`keras-vit convert`: write a checkpoint in another format."""

import dataclasses
import os
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.checkpoints.formats import FORMATS, written_formats
from keras_vit.cli.command import Command

LAYOUTS = {name: layout for name, layout in FORMATS.items() if layout.suffix}
CONFIGURED = tuple(name for name, layout in LAYOUTS.items() if layout.config_files)
DIRECTORIES = (*CONFIGURED, "saved_model")
# Modes of `keras_vit.quantize`.
QUANTIZATIONS = ("int8", "int4", "float8")
# The first layout with each suffix.
SUFFIXES = {layout.suffix: name for name, layout in reversed(LAYOUTS.items())}


@dataclasses.dataclass
class Convert(Command):
    """Write a checkpoint in another format, or for TF Serving.

    Example: keras-vit convert ViT_B16/augreg_imagenet21k flowers.keras --num-classes 5

    Args:
        source: A file (.npz, .safetensors, .h5, .keras, .pth), a directory of transformers or
            timm, a run's directory, an address (https, gs, hf), or a name of `keras-vit
            checkpoints` or of AugReg.
        target: path of a new file; for timm, transformers (`huggingface...`) and saved_model, of a
            new directory.
        to: format to write; by default the first one with the suffix of the target that can store
            all weights.
        num_classes: replace the head by a new head of zeros with this number of classes; 0 for no
            head.
        image_size: resize the position embeddings for this image size: one number, or height and
            width.
        image_channels: adapt the first kernel to images with this number of channels.
        num_heads: number of attention heads; for a file of PyTorch without a config.json.
        key: the weights to read, if a file of PyTorch has several, such as model_ema.
        quantize: quantize the projections and MLPs; only with `--to keras`.
        push: upload the directory to this repository of the Hugging Face Hub, ORG/NAME[@BRANCH],
            with a model card. The repository is created if necessary; log in with `hf auth login`
            or HF_TOKEN.
        private: create the repository of `--push` as private.
        overwrite: replace the target if it exists, and allow a target in the directory of a
            training run. A saved_model is always a new version and replaces nothing.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    target: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    to: Literal[(*LAYOUTS, "saved_model")] | None = None
    num_classes: int | None = None
    image_size: int | tuple[int, int] | None = None
    image_channels: int | None = None
    num_heads: int | None = None
    key: str | None = None
    quantize: Literal[QUANTIZATIONS] | None = None
    push: str | None = None
    private: bool = False
    overwrite: bool = False

    def run(self):
        """Convert, and print what was written."""
        from keras_vit.checkpoints import from_checkpoint, model_card, push_to_hub, save_checkpoint
        from keras_vit.checkpoints.catalog.hub import parse_repository
        from keras_vit.checkpoints.run_files import find_model
        from keras_vit.checkpoints.save import format_for
        from keras_vit.models.tuning import quantize

        to, target = self.to or SUFFIXES.get(self.target.suffix), self.target.expanduser()
        if to is None or (to == "keras") != (target.suffix == ".keras"):
            raise ValueError(
                "`--to` must be given if the suffix of the target does not determine the format, "
                f"and be `keras` only for .keras files. Received: {str(target)!r}, --to {self.to}"
            )
        if self.quantize is not None and to != "keras":
            raise ValueError(f"`--quantize` needs `--to keras`. Received: --to {to}")
        # Check the arguments before the model is downloaded.
        if self.push is not None:
            parse_repository(self.push)
        check_target(find_model(self.source), target, to, self.overwrite)
        model = from_checkpoint(
            self.source,
            self.num_classes,
            self.image_size,
            self.num_heads,
            key=self.key,
            image_channels=self.image_channels,
        )
        if self.to is None and to in written_formats():
            to = format_for(model, target.suffix)
        if self.quantize is not None:
            model = quantize(model, self.quantize)
        written = target
        # Imported here because they need TensorFlow.
        if to == "keras":
            from keras_vit.training.save_callbacks import save_model

            written.parent.mkdir(parents=True, exist_ok=True)
            save_model(model, written)
        elif to == "saved_model":
            from keras_vit.serving.export import export

            written = export(model, written)
        else:
            save_checkpoint(model, written, to, model.class_names)
        print(f"Wrote {written} ({to}): {model.name}, {model.count_params():,} parameters")
        if self.push is not None:
            # The accuracy of the source is not that of a new head or of other channels.
            is_changed = (self.num_classes, self.image_channels) != (None, None)
            metadata = card_metadata(model, self.source, is_changed=is_changed)
            card = model_card(written, self.push, **metadata)
            print(f"Uploaded: {push_to_hub(written, self.push, card, self.private)}")


def card_metadata(model, source, is_changed=False):
    """Return the known origin and accuracy of a model, as arguments of `model_card`."""
    from keras_vit.cli.export import export_metadata

    metadata = export_metadata(model, source)
    is_finetuned = "trained_from" in metadata
    origin = {"source": metadata.get("trained_from", source), "finetuned": is_finetuned}
    if is_changed:
        return origin
    if "validation_accuracy" not in metadata:
        return {**origin, "accuracy": metadata.get("reported")}
    data = str(metadata["data"])
    # Do not publish paths of this machine.
    where = "" if "/" in data or "\\" in data else f", {data}"
    accuracy = f"{metadata['validation_accuracy']:.2%} on validation images{where}"
    return {**origin, "accuracy": accuracy}


def check_target(source, target, to, overwrite):
    """Raise `ValueError` if writing the target would replace the source.

    Without `overwrite`, the target must not exist or be in the directory of a training run.
    """
    from keras_vit.checkpoints.catalog.download import FILES_OF_DIRECTORY, files_of

    # A format with a directory can also be written as a weights file without JSON files.
    is_weights_file = to in LAYOUTS and target.suffix == LAYOUTS[to].suffix
    is_folder = to in DIRECTORIES and not is_weights_file
    is_replacing = to != "saved_model"
    written = [target / name for name in FILES_OF_DIRECTORY] if is_folder else [target]
    read = files_of(source)
    if is_replacing and any(_is_same(new, old) for new in written for old in read):
        raise ValueError(
            "`target` must not be the source, which would be lost. "
            f"Received: {str(target)!r} from {str(source)!r}"
        )
    if overwrite and is_replacing:
        return
    unless = ", unless `--overwrite` is given" if is_replacing else ""
    if ((target if is_folder else target.parent) / "run.json").exists():
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
    # Some file systems ignore case.
    is_same_file = path.exists() and other.exists() and path.samefile(other)
    return is_same_file or path.resolve() == other.resolve()
