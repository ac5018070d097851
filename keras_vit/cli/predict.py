"""`keras-vit predict`: classify images, or write predictions or masks to files."""

import dataclasses
import logging
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Command, ImageArguments, ImageSize, as_shard, check_new_file
from keras_vit.core.arguments import DTYPES

# Number of images that are predicted before their lines are printed.
_AT_ONCE = 256


@dataclasses.dataclass
class Predict(Command):
    """Classify images with a trained model or an export.

    Example: keras-vit predict serving/photos cat.jpg dog.png

    Args:
        model: an export's or a run's directory, a .keras file, or a checkpoint as in `convert`.
        images: image files or folders of them; the name of a dataset as in `keras-vit train`; or
            Parquet files with a column of encoded images.
        top: classes to print for each image, the most likely first. For a model with thresholds,
            all labels above their thresholds are printed. For a model that predicts values, all
            values are printed.
        csv: also write the printed classes or values to this new CSV file, one row per image and
            class.
        output: write Parquet files to this directory instead of printing lines. The same command
            resumes after a stop.
        outputs: columns of the Parquet files: prediction, probability, probabilities, logits,
            features, attention_distance; values for a model that predicts values.
        masks: draw the mask that a segmenter predicts over each image file, and write the pictures
            to this directory instead of printing lines.
        split: the split of a dataset; by default the whole dataset.
        data_dir: directory of TensorFlow Datasets.
        batch_size: number of images in each call of the model.
        part_size: number of images in each file of `--output`.
        dtype: dtype in which a model of this package computes; by default the dtype of the model.
        processes: number of processes on this machine, or of Ray actors, that share the work of
            `--output`; each loads the model.
        shard: I/N: write only the I-th of N equal shares of the files of `--output`, as task I of
            an array of N jobs.
        engine: where the processes run: on this machine, or on a Ray cluster whose machines can all
            read and write the given paths.
        address: address of a Ray cluster, such as `auto`; by default a cluster is started on this
            machine.
        gpus: number of GPUs per Ray actor.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    images: ImageArguments
    top: int = 3
    image_size: ImageSize = None
    csv: pathlib.Path | None = None
    output: pathlib.Path | None = None
    outputs: tuple[str, ...] = ("prediction", "probability")
    masks: pathlib.Path | None = None
    split: str | None = None
    data_dir: pathlib.Path | None = None
    batch_size: int = 32
    part_size: int = 1000
    dtype: Literal[DTYPES] | None = None
    processes: int = 1
    shard: str = "1/1"
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    gpus: float = 0.0

    def run(self):
        """Print a line for each image, or write Parquet files or pictures of masks.

        Images that cannot be decoded are reported; without `--output`, the exit status is then 1.
        """
        if len([path for path in (self.csv, self.output, self.masks) if path is not None]) > 1:
            raise ValueError("`csv`, `output` and `masks` exclude each other. Received: several")
        if self.masks is not None:
            self._draw_masks()
        elif self.output is not None:
            self._write_files()
        else:
            self._print_lines()

    def _print_lines(self):
        from keras_vit.core.files import write_csv
        from keras_vit.data.inputs import find_images
        from keras_vit.serving import Predictor

        if self.csv is not None:
            check_new_file(self.csv, ".csv")
        images = find_images(self.images, self.split, self.data_dir)
        log_left_out(images)
        outputs = ("prediction", "probability", "probabilities")
        # Do not pad a few images to a whole batch.
        batch_size = min(self.batch_size, images.num_images)
        predictor = Predictor(self.model, outputs, batch_size, self.dtype, self.image_size)
        measure = "probability"
        if predictor.model.predicts_values:
            predictor.outputs, measure = ("values",), "value"
        lines = list(print_lines(predictor, images, self.top))
        if self.csv is not None:
            # Write a row for an image without classes, too.
            rows = [
                {"image": line.image, "class": name, measure: value, "error": line.error}
                for line in lines
                for name, value in line.classes or [(None, None)]
            ]
            write_csv(self.csv.expanduser().resolve(), rows)
            print(f"Written to {self.csv}")
        if any(line.error is not None for line in lines):
            sys.exit(1)

    def _write_files(self):
        import tqdm

        from keras_vit.distributed import process_pool, ray
        from keras_vit.distributed.batch import Job
        from keras_vit.serving import Predictor

        shard = as_shard(self.shard)
        settings = (self.outputs, self.batch_size, self.dtype, self.image_size)
        predictor = Predictor(self.model, *settings)
        if self.engine == "local" and self.processes == 1:
            # Fail before a directory is created if the model cannot be loaded.
            _ = predictor.model
        job = Job(predictor, self.images, self.output, self.split, self.data_dir, self.part_size)
        job.begin()
        log_left_out(job.rows)
        missing = job.missing(shard)
        if (done := len(job.of_shard(shard)) - len(missing)) > 0:
            print(f"{done} of {done + len(missing)} files exist already")
        if missing:
            num_images = sum(len(job.numbers(part)) for part in missing)
            if self.engine == "ray":
                broken = ray.write_on_cluster(job, missing, self.processes, self.address, self.gpus)
            else:
                with tqdm.tqdm(total=num_images, unit=" images") as bar:
                    broken = process_pool.write_parts(job, missing, self.processes, bar.update)
            print(f"{num_images} images predicted, {broken} of them cannot be decoded")
        print(f"Written to {self.output}")

    def _draw_masks(self):
        import tqdm

        from keras_vit.checkpoints.named_models import load_trained
        from keras_vit.data.images.decoding import decode
        from keras_vit.data.inputs import find_images
        from keras_vit.data.sources.folder import short_names
        from keras_vit.evaluation.segmentation import segment
        from keras_vit.inspection.figures.drawing import draw_masks
        from keras_vit.serving.image_files import read_image

        model = load_trained(self.model, self.image_size)
        images = find_images(self.images, self.split, self.data_dir)
        log_left_out(images)
        if "path" not in images.columns(0, 1):
            raise ValueError(f"`masks` needs image files. Received: {' '.join(self.images)}")
        class_names = model.class_names or tuple(map(str, range(model.output_shape[-1])))
        names, num_broken = short_names(images.columns(0, images.num_images)["path"]), 0
        for path, name in tqdm.tqdm(names.items(), unit="image"):
            try:
                image = decode(read_image(path)).numpy()
                mask = segment(model, image, batch_size=self.batch_size).argmax(-1)
            except ValueError as error:
                print(f"keras-vit: error: {error}", file=sys.stderr)
                num_broken += 1
                continue
            file = self.masks / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            draw_masks([image], [mask], class_names, file)
        if num_broken < len(names):
            print(f"Written to {self.masks}")
        if num_broken:
            sys.exit(1)


@dataclasses.dataclass(frozen=True)
class Line:
    """The predicted classes of an image.

    Args:
        image: path or id of the image.
        classes: list of `(name, probability)`, the most likely first; or of `(name, value)`.
        error: why the image cannot be decoded, or `None`.
    """

    image: str
    classes: list
    error: str | None = None


def print_lines(predictor, images, top):
    """Print a line for each image of `ImageRows`, and yield its `Line`."""
    from keras_vit.core.text import printable

    for columns in predicted(predictor, images):
        for index, id in enumerate(columns["id"]):
            if reason := columns["error"][index]:
                print(f"keras-vit: error: {printable(id)}: {reason}", file=sys.stderr)
                yield Line(id, [], reason)
            else:
                classes = _classes(predictor.model, columns, index, top)
                print_classes(id, classes, ".6g" if predictor.model.predicts_values else ".1%")
                yield Line(id, classes)


def predicted(predictor, images):
    """Yield the predictions for `ImageRows`, in batches of columns."""
    for start in range(0, images.num_images, _AT_ONCE):
        yield predictor(images.columns(start, min(start + _AT_ONCE, images.num_images)))


def log_left_out(images):
    """Log how many files are left out, by reason."""
    from keras_vit.data.sources.folder import describe_left_out

    if images.left_out:
        logging.getLogger("keras_vit").info("%s", describe_left_out(images.left_out))


def print_classes(image, classes, style=".1%"):
    """Print a line with the classes of an image, `[(name, probability), ...]`."""
    from keras_vit.core.text import printable

    named = [f"{printable(name)} {probability:{style}}" for name, probability in classes]
    print(printable(str(image)), *(named or ["-"]), sep="  ")


def _classes(model, columns, index, top):
    """Return the classes of one image with their probabilities, the most likely first."""
    from keras_vit.serving.predictor import class_names_of, ranked

    if model.predicts_values:
        values = columns["values"][index]
        return list(zip(class_names_of(model, len(values)), values, strict=True))
    if model.thresholds is not None:
        return list(zip(columns["prediction"][index], columns["probability"][index], strict=True))
    probabilities = columns["probabilities"][index]
    names = class_names_of(model, len(probabilities))
    return [(names[number], probabilities[number]) for number in ranked(probabilities, top)]
