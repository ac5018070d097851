"""Predictions of many images in parts: Parquet files, each written once by any worker.

The images of a part and its name depend on the images and `part_size` alone. So shards on several
machines write what one process would, and what is there need not be computed again.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import time

import pyarrow
import pyarrow.parquet

from keras_vit.core.arguments import check_integer
from keras_vit.core.choices import PREDICTIONS_JOB, PREDICTIONS_RECORD
from keras_vit.core.files import PARTIAL, differences, replacing
from keras_vit.data.inputs.find import absolute_names, check_existing, find_images, is_dataset
from keras_vit.data.sources.kinds import find_kind
from keras_vit.distributed.tables import TEXTS, output_types, to_table
from keras_vit.serving.predictor import Predictor, digest_of_model

_PARTS = "part-*-of-*.parquet"
# Seconds after which no process can be writing a file of one part.
_ABANDONED = 600


@dataclasses.dataclass(frozen=True)
class Job:
    """What is predicted, and where to, for the workers that do it.

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
        digest: `digest` of the `Parts` of the process that has begun the job, for its workers: they
            do not check again that the directory is that of the job.

    Raises:
        ValueError: if the directory is of another job, or there are no images.
    """

    def __init__(self, job, digest=None):
        if digest is None:
            check_existing(job.images)
        self.job = job
        self.images = find_images(job.images, job.split, job.data_dir)
        self.count = math.ceil(self.images.num_images / job.part_size)
        self.digest = _record(job, self.images) if digest is None else digest

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

    def of_shard(self, shard):
        """Return the parts of a shard, `(index, count)`, which follow one another."""
        index, count = shard
        return range(self.count * index // count, self.count * (index + 1) // count)

    def missing(self, shard=(0, 1)):
        """Return the parts of a shard that are not there yet."""
        return [part for part in self.of_shard(shard) if not self._is_there(part)]

    def write(self, part, on_images=None):
        """Predict a part and write its file; return the number of images that are broken."""
        predictor, images = self.job.predictor, self.images
        found = predictor(images.columns(*self.bounds(part)), on_images)
        table = to_table(found, {**self._types_of_images, **output_types(predictor)})
        self._check_own_directory()
        with replacing(self.path(part)) as partial:
            table = table.replace_schema_metadata({PREDICTIONS_JOB: self.digest})
            pyarrow.parquet.write_table(table, partial)
        return len(table) - table["error"].null_count

    def _check_own_directory(self):
        """Refuse to write where another job began after this one, before either wrote a part."""
        if _read_record(self.job.output).get("digest") != self.digest:
            raise ValueError(
                "`output` must be of one job. "
                f"Received: output={str(self.job.output)!r}, where another one began meanwhile"
            )

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
            found = pyarrow.parquet.read_metadata(path)
        except (OSError, pyarrow.ArrowException):
            # Damaged: it is written again.
            return False
        # One of another job that ran at the same time is written again, too.
        is_own = (found.metadata or {}).get(PREDICTIONS_JOB) == self.digest.encode()
        return is_own and found.num_rows == stop - start


class PartWriter:
    """A function that writes a part, for workers of engines: it finds the images when called.

    Args:
        job: a `Job`.
        digest: as in `Parts`.
    """

    def __init__(self, job, digest):
        self._find = functools.partial(Parts, job, digest)
        self._parts = None

    def __call__(self, part, on_images=None):
        """Write a part; return `(images, broken)`, the numbers of its images."""
        self._parts = self._parts or self._find()
        return self._parts.size([part]), self._parts.write(part, on_images)


def remove_abandoned(output):
    """Remove the files that killed processes were writing."""
    for path in pathlib.Path(output).glob(f".*{PARTIAL}.*"):
        if time.time() - path.stat().st_mtime > _ABANDONED:
            path.unlink(missing_ok=True)


def _record(job, images):
    """Write what a job predicts to its directory, or check that it is the job of the directory.

    Return a digest of it.
    """
    path, predictor = job.output / PREDICTIONS_RECORD, job.predictor
    record = {
        "images": list(job.images),
        "split": job.split,
        "num_images": images.num_images,
        "digest_of_images": images.digest(),
        "digest_of_model": digest_of_model(predictor.path),
        "outputs": list(predictor.outputs),
        "dtype": predictor.dtype,
        "image_size": predictor.image_size,
        "part_size": job.part_size,
    }
    digest = hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]
    more = {
        "digest": digest,
        "model": predictor.path,
        "data_dir": None if job.data_dir is None else str(job.data_dir),
        "class_names": images.class_names,
    }
    _check_files(job.output)
    try:
        # Settings may change as long as nothing was predicted.
        if not any(job.output.glob(_PARTS)):
            job.output.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                text = json.dumps({**more, **record}, indent=2)
                partial.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(
            "`output` must be a directory that can be written. "
            f"Received: output={str(job.output)!r} ({error})"
        ) from error
    before = _read_record(job.output)
    changed = differences({name: before.get(name) for name in record}, record)
    if changed:
        raise ValueError(
            "`output` must be a new directory, or one of the same model, images and settings. "
            f"Received: output={str(job.output)!r}, begun with others: {changed[0]:.300}"
            + (f" and {len(changed) - 1} more" if changed[1:] else "")
        )
    return digest


def _read_record(output):
    path = output / PREDICTIONS_RECORD
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} must be there, in JSON. Received: {error}") from error


def _check_files(output):
    """Refuse a directory with other files than predictions, or predictions of others."""
    names = {path.name for path in output.iterdir()} if output.is_dir() else set()
    parts = {path.name for path in output.glob(_PARTS)}
    others = {name for name in names - parts - {PREDICTIONS_RECORD} if name[0] != "."}
    # Another worker may write the first part now, but has written the record before.
    if others or (parts and not (output / PREDICTIONS_RECORD).exists()):
        raise ValueError(
            "`output` must be a new directory, or one of predictions of this command. "
            f"Received: output={str(output)!r}, which has {min(others or parts)}"
        )
