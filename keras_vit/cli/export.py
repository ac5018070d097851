"""`keras-vit export`: write a model for serving."""

import dataclasses
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Command, ImageSize, ModelArgument, evenly_spaced
from keras_vit.serving.formats import FORMATS, SIGNATURES, USUAL_SIGNATURES

# More images would hardly change the ranges of activations, and all images are kept in memory.
MAX_CALIBRATION = 512
PRECISIONS = tuple(dict.fromkeys(name for each in FORMATS.values() for name in each.precisions))


@dataclasses.dataclass
class Export(Command):
    """Write a trained model or a checkpoint for serving, with its preprocessing and labels.

    Example: keras-vit export runs/photos serving/photos --verify photos/cat

    Args:
        directory: directory of the model's versions; each export adds a version.
        version: number of the version; by default one more than the last.
        format: A SavedModel, for TF Serving, decodes images. Other formats take preprocessed
            images.
        signatures: signatures of a SavedModel; the first is the default signature.
        top_k: number of most likely classes that a SavedModel returns.
        batch_size: number of images in a request to a SavedModel; by default any number.
        on_bad_image: what a SavedModel returns if an image cannot be decoded: an error with its
            index, or zeros and a flag.
        warmup_batch_sizes: batch sizes of the requests with which TF Serving warms up a SavedModel;
            by default `--batch-size` or 1. Without tensorflow-serving-api, no warm-up requests are
            written by default.
        quantize: store and compute in fewer bits, if the format supports it.
        calibration: a few hundred typical image files, or folders of them, if the format needs them
            for int8.
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
        """Export, and print the path of the version."""
        from keras_vit.checkpoints.named_models import load_trained
        from keras_vit.models.image_model import image_spec_of
        from keras_vit.models.structure import stored_size
        from keras_vit.serving.export import export
        from keras_vit.serving.image_files import list_image_files, preprocess_files, without_broken
        from keras_vit.serving.verify import verify

        # Look for the images before the model is downloaded.
        verified = None if self.verify is None else list_image_files(self.verify)
        calibration = None if self.calibration is None else list_image_files(self.calibration)
        model = load_trained(self.model, self.image_size)
        spec = image_spec_of(model)
        if verified:
            verified = without_broken(verified, spec)
        if calibration:
            files = without_broken(evenly_spaced(calibration, MAX_CALIBRATION), spec)
            calibration = preprocess_files(files, stored_size(model), spec)
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
            has_only_features = set(self.signatures) == {"features"}
            _print_comparison(
                verify(model, path, verified, output=has_only_features and "features")
            )
        if FORMATS[self.format].has_signatures:
            directory = shlex.quote(str(self.directory))
            print(f"Next: docker compose --project-directory {directory} up")


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


def _print_comparison(result):
    """Print a `Comparison`; the exit status is 1 if the export is not verified."""
    if not result.value_range:
        print(f"Not verified: the {result.output} are equal for all images and prove nothing")
        raise SystemExit(1)
    same = "mean cosine similarity" if result.output == "features" else "same class for"
    print(
        f"{'Verified' if result.is_verified else 'Not verified'} on {result.num_images} images: "
        f"largest difference of {result.output} {result.largest_difference:.2g} (of a range of "
        f"{result.value_range:.2g}), {same} {result.agreement:.2%}"
    )
    if not result.is_verified:
        raise SystemExit(1)
