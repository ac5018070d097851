"""`keras-vit export`."""

import dataclasses
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Command, ImageSize, ModelArgument
from keras_vit.serving.formats import FORMATS, SIGNATURES, USUAL_SIGNATURES

# More images hardly change the ranges of the activations, and all are held in memory.
MAX_CALIBRATION = 512
PRECISIONS = tuple(dict.fromkeys(name for row in FORMATS.values() for name in row.precisions))


@dataclasses.dataclass
class Export(Command):
    """Write a trained model or a checkpoint for serving, preprocessing and labels included.

    Example: keras-vit export runs/photos serving/photos --verify photos/cat

    Args:
        directory: the model's directory; each export is a new version in it.
        version: number of the version; the one after the last by default.
        format: A SavedModel, for TF Serving, decodes images. Other formats take preprocessed
            images.
        signatures: signatures of a SavedModel; the first is its default.
        top_k: number of the most likely classes that a SavedModel names.
        batch_size: images in a request to a SavedModel; any number by default.
        on_bad_image: what a SavedModel answers if an image cannot be decoded: an error with its
            index, or zeros and a flag.
        warmup_batch_sizes: sizes of the requests with which TF Serving warms up a SavedModel; by
            default `--batch-size`, else 1. Without tensorflow-serving-api there are none.
        quantize: store and compute in fewer bits, if the format can.
        calibration: image files, or folders of them, to calibrate int8, if the format needs it: a
            few hundred typical images.
        verify: image files, or folders of them, on which to compare the export with the model.
    """

    model: ModelArgument
    directory: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIRECTORY")]
    version: int | None = None
    format: Literal[tuple(FORMATS)] = "saved_model"
    signatures: tuple[Literal[SIGNATURES], ...] = USUAL_SIGNATURES
    top_k: int = 5
    batch_size: int | None = None
    image_size: ImageSize = None
    on_bad_image: Literal["error", "flag"] = "error"
    warmup_batch_sizes: tuple[int, ...] | None = None
    quantize: Literal[PRECISIONS] | None = None
    calibration: tuple[pathlib.Path, ...] | None = None
    verify: tuple[pathlib.Path, ...] | None = None

    def run(self):
        """Export, and print where to."""
        from keras_vit.checkpoints.named_models import load_trained
        from keras_vit.models.image_model import image_spec_of
        from keras_vit.models.structure import stored_size
        from keras_vit.serving.export import export
        from keras_vit.serving.image_files import list_image_files, preprocess_files, without_broken
        from keras_vit.serving.verify import verify

        # Before a model is downloaded, which takes long.
        verified = calibration = None
        if self.verify is not None:
            verified = without_broken(list_image_files(self.verify))
        if self.calibration is not None:
            calibration = without_broken(some_of(list_image_files(self.calibration)))
        model = load_trained(self.model, self.image_size)
        if calibration:
            calibration = preprocess_files(calibration, stored_size(model), image_spec_of(model))
        path = export(
            model,
            self.directory,
            version="auto" if self.version is None else self.version,
            format=self.format,
            signatures=self.signatures,
            top_k=self.top_k,
            batch_size=self.batch_size,
            on_bad_image=self.on_bad_image,
            warmup_batch_sizes=self.warmup_batch_sizes,
            quantize=self.quantize,
            calibration=calibration,
            metadata=export_metadata(model, self.model, self.quantize),
        )
        print(f"Exported to {path}")
        if verified:
            has_features_alone = set(self.signatures) == {"features"}
            _print_comparison(
                verify(model, path, verified, output=has_features_alone and "features")
            )
        if FORMATS[self.format].has_signatures:
            directory = shlex.quote(str(self.directory))
            print(f"Next: docker compose --project-directory {directory} up")


def some_of(files):
    """Return at most `MAX_CALIBRATION` files, evenly spaced in the list."""
    count = min(MAX_CALIBRATION, len(files))
    return [files[number * len(files) // count] for number in range(count)]


def export_metadata(model, source, quantize=None):
    """Return the known origin and accuracy of a model, for `model.json`."""
    from keras_vit.checkpoints.run_files import find_model, run_metadata
    from keras_vit.experiments.reported import reported_of_checkpoint

    metadata = {"source": str(source), **run_metadata(find_model(source), model.input_shape[1:3])}
    reported = reported_of_checkpoint(source, model, "imagenet2012")
    if reported is not None:
        metadata["reported"] = f"{reported} on {reported.dataset} ({reported.source})"
    for name in ("validation_accuracy", "reported") if quantize else ():
        if name in metadata:
            metadata[f"{name}_before_quantization"] = metadata.pop(name)
    return metadata


def _print_comparison(found):
    """Print a `Comparison`; the exit status is 1 if the export is not verified."""
    if not found.value_range:
        print(f"Not verified: the {found.output} are equal for all images: nothing was compared")
        raise SystemExit(1)
    same = "mean cosine similarity" if found.output == "features" else "same class for"
    print(
        f"{'Verified' if found.is_verified else 'Not verified'} on {found.num_images} images: "
        f"largest difference of {found.output} {found.largest_difference:.2g} (they span "
        f"{found.value_range:.2g}), {same} {found.agreement:.2%}"
    )
    if not found.is_verified:
        raise SystemExit(1)
