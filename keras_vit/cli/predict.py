"""`keras-vit predict`."""

import dataclasses
import logging
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from keras_vit.cli.predict_lines import print_lines, tell_left_out
from keras_vit.core.choices import DTYPES


@dataclasses.dataclass
class Predict:
    """Classify images with a trained model or with its export.

    Example: keras-vit predict serving/photos cat.jpg dog.png
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """An export's or a run's directory, a .keras file, or a checkpoint as in `convert`."""
    images: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="IMAGE [IMAGE ...]", help_behavior_hint="(required)"),
    ]
    """Image files and folders of them; the name of a dataset as in `keras-vit train`; or Parquet
    files with a column of encoded images."""
    top: int = 3
    """Classes to print for each image, the most likely first; a model with thresholds prints all
    labels above theirs."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""
    csv: pathlib.Path | None = None
    """Write the printed classes to this new CSV file, too: one row for each class of an image."""
    output: pathlib.Path | None = None
    """Write Parquet files to this directory instead of lines. Run the same command again to resume
    it: files that are there are not computed again."""
    outputs: tuple[str, ...] = ("prediction", "probability")
    """Columns of the files: prediction, probability, probabilities, logits, features,
    attention_distance."""
    masks: pathlib.Path | None = None
    """Instead of printing lines, write the masks that a segmenter predicts, drawn over each image
    file, to this directory."""
    split: str | None = None
    """The split of a dataset; by default all of it."""
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    batch_size: int = 32
    """Images in one step of the model."""
    part_size: int = 1000
    """Images in one file of `--output`."""
    dtype: Literal[DTYPES] | None = None
    """What a model of this package computes in; by default what it is stored for."""
    processes: int = 1
    """Processes of this machine that share the work, or actors of Ray; each loads the model."""
    shard: str = "1/1"
    """I/N: write only the I-th of N equal shares of the files, as task I of an array of N jobs."""
    engine: Literal["local", "ray"] = "local"
    """Ray runs the processes on a cluster whose machines share the directories."""
    address: str | None = None
    """The cluster of Ray, such as `auto`; by default one is started on this machine."""
    gpus: float = 0.0
    """GPUs of each of Ray's actors."""

    def run(self):
        """Print a line for each image, or write Parquet files.

        Images that cannot be decoded are reported; where lines are printed, the status is then 1.
        """
        from keras_vit.cli.convert import as_image_size
        from keras_vit.data.inputs.find import find_images
        from keras_vit.data.sources.folder import SUFFIXES
        from keras_vit.serving import Predictor

        if not self.images:
            raise ValueError(
                "`images` must name at least one file, after the model, the first argument. "
                f"Received: the model {self.model!r} and no images"
            )
        if pathlib.Path(self.model).suffix.lower() in SUFFIXES:
            raise ValueError(
                "`model`, the first argument, must be a model or an export, and images come after "
                f"it. Received: the image {self.model!r}"
            )
        check_images(self.images, self.top)
        shard = as_shard(self.shard)
        self._check_flags()
        if self.masks is not None:
            self._draw_masks()
            return
        warn_of_other_model(self.model)
        size, scale = as_image_size(self.image_size), (self.batch_size, self.dtype)
        if self.output is not None:
            self._write_files(Predictor(self.model, self.outputs, *scale, size), shard)
            return
        images = find_images(self.images, self.split, self.data_dir)
        tell_left_out(images)
        # One image is not padded to a batch.
        scale = (min(self.batch_size, images.num_images), self.dtype)
        outputs = ("prediction", "probability", "probabilities")
        predictor = Predictor(self.model, outputs, *scale, size)
        lines = print_lines(predictor, images, self.top)
        if self.csv is not None:
            lines = list(lines)
            self._write_csv(lines)
        num_errors = sum(line.error is not None for line in lines)
        if num_errors:
            sys.exit(1)

    def _check_flags(self):
        names = ("outputs", "part_size", "processes", "shard", "engine", "address", "gpus")
        defaults = {field.name: field.default for field in dataclasses.fields(Predict)}
        given = [name for name in names if getattr(self, name) != defaults[name]]
        if given and self.output is None:
            raise ValueError(
                f"`--{given[0].replace('_', '-')}` is for `--output`. Received: no --output"
            )
        if self.output is not None and self.top != defaults["top"]:
            raise ValueError("`--top` is for lines, without `--output`. Received: both")
        if self.output is not None and self.csv is not None:
            raise ValueError("`--csv` is for lines, without `--output`. Received: both")
        if self.csv is not None:
            file = self.csv.expanduser()
            reason = "which exists" if file.exists() else "whose folder does not exist"
            if file.exists() or not file.parent.is_dir():
                raise ValueError(
                    "`--csv` must be a new file in a folder that exists. "
                    f"Received: {str(self.csv)!r}, {reason}"
                )
        refused = [n for n in ("output", "top", "csv", "dtype") if getattr(self, n) != defaults[n]]
        if self.masks is not None and refused:
            raise ValueError(
                "`--masks` is without `--output`, `--top`, `--csv` and `--dtype`. "
                f"Received: --masks and --{refused[0]}"
            )
        if self.engine != "ray" and (self.address is not None or self.gpus):
            raise ValueError("`--address` and `--gpus` are for `--engine ray`. Received: local")
        if self.processes < 1:
            raise ValueError(f"`--processes` must be positive. Received: {self.processes}")

    def _draw_masks(self):
        import tqdm

        from keras_vit.checkpoints.trained import load_trained
        from keras_vit.cli.convert import as_image_size
        from keras_vit.data.images.decoding import decode
        from keras_vit.data.inputs.find import find_images
        from keras_vit.data.sources.folder import short_names
        from keras_vit.evaluation.segmentation import segment
        from keras_vit.inspection.figures.drawing import check_matplotlib
        from keras_vit.inspection.figures.masks import draw_masks
        from keras_vit.models.parts import is_segmenter
        from keras_vit.serving.encoded import read_image
        from keras_vit.serving.formats import find_export

        check_matplotlib()
        if find_export(self.model) is not None:
            raise ValueError(
                "`--masks` needs a run, a .keras file or a checkpoint. "
                f"Received: the export {self.model}"
            )
        model = load_trained(self.model, as_image_size(self.image_size))
        if not is_segmenter(model):
            raise ValueError(
                f"`--masks` needs a segmenter. Received: {self.model}, which predicts no pixels"
            )
        images = find_images(self.images, self.split, self.data_dir)
        tell_left_out(images)
        if "path" not in images.columns(0, 1):
            raise ValueError(f"`--masks` needs image files. Received: {' '.join(self.images)}")
        class_names = model.class_names or tuple(map(str, range(model.output_shape[-1])))
        names = short_names(images.columns(0, images.num_images)["path"])
        drawn = 0
        for path, name in tqdm.tqdm(names.items(), unit="image"):
            try:
                image = decode(read_image(path)).numpy()
                mask = segment(model, image, batch_size=self.batch_size).argmax(-1)
            except ValueError as error:
                print(f"keras-vit: error: {error}", file=sys.stderr)
                continue
            file = self.masks / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            draw_masks([image], [mask], class_names, file)
            drawn += 1
        if drawn:
            print(f"Written to {self.masks}")
        if drawn < len(names):
            sys.exit(1)

    def _write_csv(self, lines):
        from keras_vit.core.files import write_csv

        # An image without a class has a row, too.
        rows = [
            {"image": line.image, "class": name, "probability": probability, "error": line.error}
            for line in lines
            for name, probability in line.classes or [(None, None)]
        ]
        write_csv(self.csv.expanduser().resolve(), rows)
        print(f"Written to {self.csv}")

    def _write_files(self, predictor, shard):
        import tqdm

        from keras_vit.distributed.batch import Job, Parts, remove_abandoned

        # What cannot work is refused before a directory is made.
        if self.engine == "ray":
            from keras_vit.distributed.ray import import_ray

            import_ray()
        elif self.processes == 1:
            _ = predictor.model
        settings = (self.split, self.data_dir, self.part_size)
        parts = Parts(Job(predictor, self.images, self.output, *settings))
        tell_left_out(parts.images)
        remove_abandoned(self.output)
        mine, missing = parts.of_shard(shard), parts.missing(shard)
        if len(missing) < len(mine):
            print(f"{len(mine) - len(missing)} of {len(mine)} files are there already")
        if missing:
            try:
                with tqdm.tqdm(total=parts.size(missing), unit=" images") as bar:
                    broken = self._write(parts, missing, bar.update)
            except KeyboardInterrupt:
                print("keras-vit: stopped; run the same command to resume", file=sys.stderr)
                raise KeyboardInterrupt("stopped") from None
            print(f"{parts.size(missing)} images predicted, {broken} of them cannot be decoded")
        print(f"Written to {self.output}")

    def _write(self, parts, missing, on_images):
        if self.engine == "ray":
            from keras_vit.distributed.ray import write_parts

            options = {"address": self.address, "num_gpus": self.gpus}
            return write_parts(parts, missing, self.processes, on_images=on_images, **options)
        from keras_vit.distributed.processes import write_parts

        return write_parts(parts, missing, self.processes, on_images)


def check_images(images, top):
    """Check that there is something to do."""
    if not images:
        raise ValueError("`images` must name at least one file. Received: none")
    if top < 1:
        raise ValueError(f"`--top` must be positive. Received: top={top}")


def as_shard(text):
    """Return `I/N`, which counts from 1, as `(index, count)`, which counts from 0."""
    index, slash, count = text.partition("/")
    is_pair = slash and index.isdecimal() and count.isdecimal()
    if not is_pair or not 1 <= int(index) <= int(count):
        raise ValueError(f"`--shard` must be I/N with 1 <= I <= N. Received: {text!r}")
    return int(index) - 1, int(count)


def warn_of_other_model(path):
    """Log a warning if a folder has a checkpoint next to the export that is used."""
    from keras_vit.serving.formats import find_export

    other = pathlib.Path(path) / "model.safetensors"
    if find_export(path) is not None and other.exists():
        logging.getLogger("keras_vit").warning(
            "the export in %s is used, not the checkpoint in the same folder: for that give %s",
            *(path, other),
        )
