"""Predictions of many images in parts: Parquet files, each written once by any worker.

The images of a part and its name depend on the images and `part_size` alone. So shards on several
machines write what one process would, and what is there need not be computed again.
"""

import dataclasses
import functools
import json
import math
import pathlib
import time

import pyarrow
import pyarrow.parquet

from keras_vit.core.arguments import check_integer
from keras_vit.core.files import PARTIAL, differences, replacing
from keras_vit.data.inputs.find import absolute_names, find_images, is_dataset
from keras_vit.data.sources.kinds import find_kind
from keras_vit.distributed.tables import TEXTS, output_types, to_table
from keras_vit.serving.prediction.models import digest_of_model
from keras_vit.serving.prediction.predictor import Predictor

# Readers of Parquet ignore files that begin with an underscore or a dot.
RECORD = "_predictions.json"
# Seconds after which no process can be writing a file of one part.
_ABANDONED = 600


@dataclasses.dataclass(frozen=True)
class Job:
    """What is predicted, and where to: all that a worker needs to know.

    Args:
        predictor: a `keras_vit.serving.Predictor`.
        images: names of the images, as in `keras_vit.data.inputs.find.find_images`.
        output: directory of the parts.
        split: as in `find_images`.
        data_dir: as in `find_images`.
        part_size: number of images in a part.
    """

    predictor: Predictor
    images: tuple[str, ...]
    output: pathlib.Path
    split: str | None = None
    data_dir: pathlib.Path | None = None
    part_size: int = 1000

    def __post_init__(self):
        check_integer("part_size", self.part_size, 1)
        object.__setattr__(self, "images", absolute_names(self.images))
        object.__setattr__(self, "output", pathlib.Path(self.output).expanduser().absolute())
        for folder in filter(pathlib.Path.is_dir, map(_path_of, self.images)):
            if self.output.resolve().is_relative_to(folder.resolve()):
                # It would be a class the next time.
                raise ValueError(
                    "`output` must not be in the folder of the images. "
                    f"Received: output={str(self.output)!r}, images={str(folder)!r}"
                )


def _path_of(name):
    """Return the path of images; of a dataset without a path one that does not exist."""
    is_path = not is_dataset(name)
    return pathlib.Path(name if is_path else find_kind(name)[1] or "/no path/")


class Parts:
    """The parts of a job, for one worker.

    Args:
        job: a `Job`.

    Raises:
        ValueError: if the directory is of another job, or there are no images.
    """

    def __init__(self, job):
        self.job = job
        self.images = find_images(job.images, job.split, job.data_dir)
        self.count = math.ceil(self.images.num_images / job.part_size)
        _record(job, self.images)

    def path(self, part):
        """Return the file of a part."""
        return self.job.output / f"part-{part:05d}-of-{self.count:05d}.parquet"

    def bounds(self, part):
        """Return the number of the first image of a part, and the one after its last."""
        start = part * self.job.part_size
        return start, min(start + self.job.part_size, self.images.num_images)

    def size(self, parts):
        """Return the number of images in a list of parts."""
        return sum(stop - start for start, stop in map(self.bounds, parts))

    def missing(self, shard=(0, 1)):
        """Return the parts of a shard, `(index, count)`, that are not there yet."""
        index, count = shard
        return [part for part in range(index, self.count, count) if not self._is_there(part)]

    def write(self, part, on_images=None):
        """Predict a part and write its file; return the number of images that are broken."""
        predictor, images = self.job.predictor, self.images
        found = predictor(images.columns(*self.bounds(part)), on_images)
        table = to_table(found, {**self._types_of_images, **output_types(predictor)})
        with replacing(self.path(part)) as partial:
            pyarrow.parquet.write_table(table, partial)
        return len(table) - table["error"].null_count

    @functools.cached_property
    def _types_of_images(self):
        if not self.images.has_labels:
            return {"id": TEXTS}
        several = self.images.has_several_labels
        return {"id": TEXTS, "label": pyarrow.list_(TEXTS) if several else TEXTS}

    def _is_there(self, part):
        path, (start, stop) = self.path(part), self.bounds(part)
        if not path.exists():
            return False
        try:
            return pyarrow.parquet.read_metadata(path).num_rows == stop - start
        except (OSError, pyarrow.ArrowException):
            # A disk lost it; it is written again.
            return False


def remove_abandoned(output):
    """Remove the files that killed processes were writing."""
    for path in pathlib.Path(output).glob(f".*{PARTIAL}.*"):
        if time.time() - path.stat().st_mtime > _ABANDONED:
            path.unlink(missing_ok=True)


def _record(job, images):
    """Write what a job predicts to its directory, or check that it is the job of the directory."""
    path, predictor = job.output / RECORD, job.predictor
    record = {
        "images": list(job.images),
        "split": job.split,
        "num_images": images.num_images,
        "digest_of_ids": images.digest(),
        "digest_of_model": digest_of_model(predictor.path),
        "outputs": list(predictor.outputs),
        "dtype": predictor.dtype,
        "image_size": predictor.image_size,
        "part_size": job.part_size,
    }
    try:
        # Settings may change as long as nothing was predicted.
        if not any(job.output.glob("part-*.parquet")):
            job.output.mkdir(parents=True, exist_ok=True)
            _check_empty(job.output)
            with replacing(path) as partial:
                text = json.dumps({"model": predictor.path, **record}, indent=2)
                partial.write_text(text + "\n", encoding="utf-8")
        before = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            "`output` must be a directory that can be written. "
            f"Received: output={str(job.output)!r} ({error})"
        ) from error
    except ValueError as error:
        raise ValueError(f"{str(path)!r} must be JSON. Received: {error}") from error
    changed = differences({name: before.get(name) for name in record}, record)
    if changed:
        raise ValueError(
            "`output` must be a new directory, or one of the same model, images and settings. "
            f"Received: output={str(job.output)!r}, begun with others: {changed[0]}"
            + (f" and {len(changed) - 1} more" if changed[1:] else "")
        )


def _check_empty(output):
    others = {path.name for path in output.iterdir() if path.name[0] != "."} - {RECORD}
    if others:
        raise NotADirectoryError(f"it holds {min(others)}, which is no prediction")
