"""`Job`: predict many images with several workers, and write a directory of Parquet files.

The images are divided into parts, with one file per part. Which images a part has, and the name of
its file, depend only on the list of all images and `part_size`. So several machines can share the
work, and existing parts need not be computed again.
"""

import dataclasses
import functools
import math
import pathlib

import numpy as np
import pyarrow
import pyarrow.parquet

from keras_vit.core.arguments import check_integer
from keras_vit.core.files import replacing
from keras_vit.core.run_dir import RunDir
from keras_vit.data.inputs import (
    PREDICTIONS_RECORD,
    absolute_names,
    find_images,
    is_dataset,
    matching_paths,
)
from keras_vit.data.sources.kinds import find_kind
from keras_vit.serving.predictor import Predictor, digest_of_model

_TEXTS, _NUMBERS = pyarrow.string(), pyarrow.float32()
# How deep the lists of numbers of an image are nested in the column of each output.
_LIST_DEPTHS = {
    **dict.fromkeys(("probabilities", "logits", "values", "features"), 1),
    "attention_distance": 2,
}


@dataclasses.dataclass(frozen=True)
class Job:
    """Predictions of images, which are written to a directory. A job can be sent to workers.

    Args:
        predictor: a `keras_vit.serving.Predictor`.
        images: names of the images, as in `keras_vit.data.inputs.find_images`.
        output: directory for the files of the parts.
        split: as in `find_images`.
        data_dir: as in `find_images`.
        part_size: number of images per part.
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
        paths = (find_kind(name)[1] if is_dataset(name) else name for name in self.images)
        for folder in map(pathlib.Path, filter(None, paths)):
            if folder.is_dir() and self.output.resolve().is_relative_to(folder.resolve()):
                # The next time, the folder `output` would be read as a class of images.
                raise ValueError(
                    "`output` must not be in the folder of the images. "
                    f"Received: output={str(self.output)!r}, images={str(folder)!r}"
                )

    def __reduce__(self):
        # Pickle only the arguments.
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @functools.cached_property
    def rows(self):
        """The images as `keras_vit.data.inputs.ImageRows`; each process lists the images."""
        return find_images(self.images, self.split, self.data_dir)

    @property
    def count(self):
        """Number of parts."""
        return math.ceil(self.rows.num_images / self.part_size)

    def begin(self):
        """Record the settings in `output`, or compare them with the settings recorded before.

        Raises:
            ValueError: if other settings are recorded, or there are no images.
        """
        for name in self.images:
            if not is_dataset(name) and not all(path.exists() for path in matching_paths(name)):
                raise ValueError(f"`images` must exist. Received: {name!r}, which does not exist")
        predictor = self.predictor
        settings = {
            "images": self.images,
            "split": self.split,
            "num_images": self.rows.num_images,
            "digest_of_images": self.rows.digest(),
            "digest_of_model": digest_of_model(predictor.path),
            **{name: getattr(predictor, name) for name in ("outputs", "dtype", "image_size")},
            "part_size": self.part_size,
        }
        unchecked = {
            "model": predictor.path,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "class_names": self.rows.class_names,
        }
        options = {"file": PREDICTIONS_RECORD, "may_differ": tuple(unchecked), "resume": True}
        with RunDir(self.output, {**unchecked, **settings}, **options).open(shared=True):
            pass

    def path(self, part):
        """Return the path of the file of a part."""
        return self.output / f"part-{part:05d}-of-{self.count:05d}.parquet"

    def numbers(self, part):
        """Return the numbers of the images of a part, as a range."""
        start = part * self.part_size
        return range(start, min(start + self.part_size, self.rows.num_images))

    def of_shard(self, shard):
        """Return the parts of a shard, `(index, count)`, as a range."""
        index, count = shard
        return range(self.count * index // count, self.count * (index + 1) // count)

    def missing(self, shard=(0, 1)):
        """Return the parts of a shard whose files are missing or incomplete."""
        return [part for part in self.of_shard(shard) if not self._is_complete(part)]

    def _is_complete(self, part):
        try:
            metadata = pyarrow.parquet.read_metadata(self.path(part))
        except (OSError, pyarrow.ArrowException):
            return False
        return metadata.num_rows == len(self.numbers(part))

    def write(self, part, on_images=None):
        """Predict the images of a part and write its file.

        Args:
            part: number of the part.
            on_images: as in the call of a `Predictor`.

        Returns:
            `(images, broken)`: the number of images, and of images that cannot be decoded.
        """
        numbers, types = self.numbers(part), {"id": _TEXTS}
        if self.rows.has_labels:
            kind = _NUMBERS if self.rows.has_values else _TEXTS
            types["label"] = _nested(kind, int(self.rows.is_multi_label or self.rows.has_values))
        columns = self.predictor(self.rows.columns(numbers.start, numbers.stop), on_images)
        table = to_table(columns, types | output_types(self.predictor))
        with replacing(self.path(part)) as partial:
            pyarrow.parquet.write_table(table, partial)
        return len(table), len(table) - table["error"].null_count


def output_types(predictor):
    """Return the Arrow types of the columns that a predictor adds, a dictionary by their names."""
    is_multi_label = predictor.model.thresholds is not None
    types = {"prediction": (_TEXTS, is_multi_label), "probability": (_NUMBERS, is_multi_label)}
    types |= {name: (_NUMBERS, depth) for name, depth in _LIST_DEPTHS.items()}
    return {name: _nested(*types[name]) for name in predictor.outputs} | {"error": _TEXTS}


def _nested(kind, depth):
    return _nested(pyarrow.list_(kind), depth - 1) if depth else kind


def to_table(columns, types):
    """Convert columns to a table. Outputs of images that cannot be decoded become null.

    Args:
        columns: dictionary of arrays, as a `Predictor` returns them.
        types: dictionary from the names of columns to Arrow types.

    Returns:
        A `pyarrow.Table` with the columns in the order of `types`.
    """
    is_broken = np.array([error is not None for error in columns["error"]], bool)
    arrays = {name: _array(columns[name], kind, is_broken) for name, kind in types.items()}
    return pyarrow.table(arrays)


def _array(values, kind, is_broken):
    if values.dtype == object:
        return pyarrow.array(values.tolist(), kind)
    if values.ndim == 1:
        return pyarrow.array(values, kind, mask=is_broken)
    return _lists(values, is_broken)


def _lists(values, is_broken=None):
    """Convert an array `(rows, ...)` to Arrow lists, without making a Python object per number."""
    rows, length = values.shape[:2]
    inner = values.reshape(rows * length, *values.shape[2:])
    inner = _lists(inner) if inner.ndim > 1 else pyarrow.array(inner)
    offsets = pyarrow.array(range(0, rows * length + 1, length), pyarrow.int32())
    mask = None if is_broken is None else pyarrow.array(is_broken)
    return pyarrow.ListArray.from_arrays(offsets, inner, mask=mask)
