"""`keras-vit export`."""

import dataclasses
import itertools
import json
import math
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.serving.formats import FORMATS
from keras_vit.serving.formats.saved_model import SIGNATURES, USUAL_SIGNATURES

# More images hardly change the ranges of the activations, and all are held in memory.
MAX_CALIBRATION = 512
PRECISIONS = tuple(dict.fromkeys(name for row in FORMATS.values() for name in row.precisions))


@dataclasses.dataclass
class Export:
    """Write a trained model or a checkpoint for serving, preprocessing and labels included.

    Example: keras-vit export runs/photos serving/photos --verify photos/cat
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`."""
    directory: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIRECTORY")]
    """The model's directory; each export is a new version in it."""
    version: int | None = None
    """Number of the version; the one after the last by default."""
    format: Literal[tuple(FORMATS)] = "saved_model"
    """A SavedModel, for TF Serving, decodes images. Other formats take preprocessed images."""
    signatures: tuple[Literal[SIGNATURES], ...] = USUAL_SIGNATURES
    """Signatures of a SavedModel; the first is its default."""
    top_k: int = 5
    """Number of the most likely classes that a SavedModel names."""
    batch_size: int | None = None
    """Images in a request to a SavedModel; any number by default."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""
    on_bad_image: Literal["error", "flag"] = "error"
    """What a SavedModel answers if an image cannot be decoded: an error with its index, or zeros
    and a flag."""
    warmup_batch_sizes: tuple[int, ...] | None = None
    """Sizes of the requests with which TF Serving warms up a SavedModel; by default `--batch-size`,
    else 1. Without tensorflow-serving-api there are none."""
    quantize: Literal[PRECISIONS] | None = None
    """Store and compute in fewer bits, if the format can."""
    calibration: tuple[pathlib.Path, ...] | None = None
    """Image files, or folders of them, to calibrate int8, if the format needs it: a few hundred
    typical images."""
    verify: tuple[pathlib.Path, ...] | None = None
    """Image files, or folders of them, on which to compare the export with the model."""

    def run(self):
        """Export, and print where to."""
        from keras_vit.checkpoints.trained import load_trained
        from keras_vit.cli.convert import as_image_size
        from keras_vit.models.model import image_spec_of
        from keras_vit.models.parts import stored_size
        from keras_vit.serving.checks import check_export_settings
        from keras_vit.serving.export import export
        from keras_vit.serving.loaded import preprocess_files
        from keras_vit.serving.predict import read_stored
        from keras_vit.serving.verify import find_images, without_broken

        names = ("format", "signatures", "top_k", "batch_size", "on_bad_image")
        names += ("warmup_batch_sizes", "quantize")
        settings = {name: getattr(self, name) for name in names}
        row = check_export_settings(**settings, has_calibration=self.calibration is not None)
        if self.verify and row.has_signatures and set(self.signatures) == {"features"}:
            raise ValueError(
                "`--verify` compares logits and needs another signature than `features`. "
                f"Received: --signatures {' '.join(self.signatures)}"
            )
        # Before a model is downloaded, which takes long.
        verified, calibration = [], None
        if self.verify is not None:
            verified = without_broken(find_images(self.verify), self.verify)
        if self.calibration is not None:
            found = some_of(find_images(self.calibration))
            calibration = without_broken(found, self.calibration)
        model = load_trained(self.model, as_image_size(self.image_size))
        if calibration:
            encoded = (read_stored(file)[0] for file in calibration)
            calibration = preprocess_files(encoded, stored_size(model), image_spec_of(model))
        path = export(
            model,
            self.directory,
            version="auto" if self.version is None else self.version,
            calibration=calibration,
            facts=facts_of(model, self.model, self.quantize),
            **settings,
        )
        print(f"Exported to {path}")
        if verified:
            _compare(model, path, verified)
        if row.has_signatures:
            print(_next_commands(model, self.directory, path.parent.name, self.batch_size))


def some_of(files):
    """Return at most `MAX_CALIBRATION` files, evenly spaced in the list."""
    if len(files) <= MAX_CALIBRATION:
        return files
    print(f"Calibrating on {MAX_CALIBRATION} of {len(files)} images")
    return [files[number * len(files) // MAX_CALIBRATION] for number in range(MAX_CALIBRATION)]


def _next_commands(model, directory, name, batch_size):
    from keras_vit.models.parts import is_segmenter
    from keras_vit.serving.operations import served_name

    directory, name = shlex.quote(str(directory)), served_name(name)
    # Both commands print classes of images.
    is_classifier = not is_segmenter(model)
    commands = [f"keras-vit predict {directory} IMAGE"] if is_classifier else []
    commands.append(f"docker compose --project-directory {directory} up")
    # This command sends one image at a time.
    if is_classifier and batch_size in (None, 1):
        commands.append(f"keras-vit client IMAGE --url http://localhost:8501/v1/models/{name}")
    return "Next: " + "\n      ".join(commands)


def facts_of(model, source, quantize=None):
    """Return the known origin and accuracy of a model, for `model.json`."""
    from keras_vit.checkpoints.runs import find_model, run_of
    from keras_vit.experiments.reported import reported_of_checkpoint

    facts, when = {"source": str(source)}, "_before_quantization" if quantize else ""
    path = find_model(source)
    run = run_of(path) if path.suffix == ".keras" else {}
    if run:
        facts.update(data=run.get("data"), trained_from=run.get("model"))
        accuracy = _validation_accuracy(path, run, model.input_shape[1:3])
        if accuracy is not None:
            facts[f"validation_accuracy{when}"] = accuracy
    reported = reported_of_checkpoint(source, model, "imagenet2012")
    if reported is not None:
        facts[f"reported{when}"] = f"{reported} on {reported.dataset} ({reported.source})"
    return facts


def _validation_accuracy(path, run, image_size):
    """Return the accuracy of a model file that its run measured, or `None`."""
    from keras_vit.checkpoints.runs import AVERAGED_MODEL, BEST_MODEL, LAST_MODEL
    from keras_vit.training.saving import METRICS_FILE

    recipe = run.get("recipe", {})
    # If the weights are averaged, the run evaluates the averages.
    is_averaged = recipe.get("ema_momentum") is not None
    last = AVERAGED_MODEL if is_averaged else LAST_MODEL
    is_measured = path.name in (BEST_MODEL, last) and "class_names" in run
    is_measured &= tuple(image_size) == (recipe.get("image_size"),) * 2
    metrics = path.with_name(METRICS_FILE)
    accuracies = _read_accuracies(metrics) if is_measured and metrics.is_file() else []
    if not accuracies:
        return None
    return max(accuracies) if path.name == BEST_MODEL else accuracies[-1]


def _read_accuracies(path):
    """Return the validation accuracies of the epochs whose models were saved."""
    try:
        epochs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        # A loss that is not finite is null; older files have NaN or Infinity.
        losses = [epoch.get("val_loss") for epoch in epochs]
        is_saved = [loss is not None and math.isfinite(loss) for loss in losses]
        saved = itertools.compress(epochs, is_saved)
        found = [epoch["val_accuracy"] for epoch in saved if "val_accuracy" in epoch]
        if not all(0 <= accuracy <= 1 for accuracy in found):
            raise ValueError(f"accuracies {found}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "The metrics of a run must have one line of JSON per epoch, with accuracies from 0 "
            f"to 1. Received: {str(path)!r} ({error})"
        ) from error
    return found


def _compare(model, path, files):
    from keras_vit.serving.verify import verify

    found = verify(model, path, files)
    if not found.logit_range:
        print("Not verified: the logits of the model are equal, so nothing was compared")
        raise SystemExit(1)
    print(
        f"{'Verified' if found.is_verified else 'Not verified'} on {found.num_images} images: "
        f"largest difference of logits {found.largest_difference:.2g} (they span "
        f"{found.logit_range:.2g}), same class for {found.agreement:.2%}"
    )
    if not found.is_verified:
        raise SystemExit(1)
