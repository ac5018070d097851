"""Hashes of a large set in files: parts that any process writes, each once.

The images of a part and its name depend on the set and on `part_size` alone. So shards on several
machines write what one process would, and what is there need not be computed again.
"""

import json
import math
import os
import pathlib
import zipfile
from collections.abc import Callable

import numpy as np

from keras_vit.core.arguments import check_integer
from keras_vit.core.files import differences, read_npz, replacing
from keras_vit.data.deduplication.hashes import VIEW_SIDE, WORDS, Hashes, hash_part
from keras_vit.data.sources.base import Source

RECORD = "hashes.json"
# To be increased if images get other hashes: parts of other versions are then refused.
_VERSION = 1
# Type of the arrays of a part, and shape of a row.
_ARRAYS = {
    "numbers": ("int64", ()),
    "words": ("uint16", (1, WORDS)),
    "colors": ("uint8", (VIEW_SIDE, VIEW_SIDE, 3)),
    "skipped": ("int64", ()),
    "blank": ("int64", ()),
}


class HashParts:
    """The hashes of the images of a source, in files of a directory.

    Iteration yields the `Hashes` of one part after the other, and computes those that are missing.

    Args:
        source: the `Source`.
        directory: directory of the parts; it is made if it does not exist.
        data: name of the data, which the directory records.
        part_size: number of images in a part.

    Raises:
        ValueError: if the directory is of other images, or cannot be written.

    Example:
    >>> import tempfile
    >>> from keras_vit.data.loading import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> parts = HashParts(digits, tempfile.mkdtemp(), "digits", part_size=50)
    >>> parts.missing(shard=(0, 2))
    [0]
    >>> len(parts.write(0).numbers)
    50
    >>> parts.missing()
    [1]
    """

    def __init__(
        self, source: Source, directory: str | os.PathLike, data: str, part_size: int = 5000
    ) -> None:
        check_integer("part_size", part_size, 1)
        self.source, self.part_size = source, part_size
        self.directory = pathlib.Path(directory).expanduser()
        # `Source.some` takes sorted numbers; those of a large set are not copied for nothing.
        is_sorted = np.all(source.numbers[:-1] <= source.numbers[1:])
        self._numbers = source.numbers if is_sorted else np.sort(source.numbers)
        self.count = math.ceil(len(self._numbers) / part_size)
        self._check_record(
            {
                "data": data,
                "num_images": len(self._numbers),
                "digest_of_images": source.digest(),
                "part_size": part_size,
                "version": _VERSION,
            }
        )

    def __iter__(self):
        for part in range(self.count):
            hashes = self._load(part)
            yield self.write(part) if hashes is None else hashes

    def path(self, part):
        """Return the file of a part."""
        return self.directory / f"part-{part:05d}-of-{self.count:05d}.npz"

    def numbers(self, part):
        """Return the numbers of the examples of a part."""
        return self._numbers[part * self.part_size : (part + 1) * self.part_size]

    def size(self, parts):
        """Return the number of images in a list of parts."""
        return sum(len(self.numbers(part)) for part in parts)

    def missing(self, shard=(0, 1)):
        """Return the parts of a shard, `(index, count)`, that are not there or not whole."""
        index, count = shard
        return [part for part in range(index, self.count, count) if self._load(part) is None]

    def write(self, part: int, on_image: Callable | None = None) -> Hashes:
        """Hash the images of a part and write its file.

        Args:
            part: number of the part.
            on_image: as in `keras_vit.data.deduplication.hashes.hash_part`.

        Returns:
            `Hashes`.
        """
        hashes = hash_part(self.source, self.numbers(part), on_image)
        self.store(part, hashes)
        return hashes

    def store(self, part, hashes):
        """Write the file of a part, of which the `Hashes` are known."""
        with replacing(self.path(part)) as partial:
            np.savez(partial, **{name: getattr(hashes, name) for name in _ARRAYS})

    def _load(self, part):
        """Return the `Hashes` of a part, or `None` if its file is not there or not whole."""
        try:
            rows = read_npz(self.path(part))
            arrays = {name: rows[name] for name in _ARRAYS}
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            # A disk lost it; it is written again.
            return None
        found = np.concatenate([arrays[name] for name in ("numbers", "skipped", "blank")])
        count = len(arrays["numbers"])
        is_whole = np.array_equal(np.sort(found), self.numbers(part)) and all(
            arrays[name].dtype == dtype and arrays[name].shape[1:] == shape
            for name, (dtype, shape) in _ARRAYS.items()
        )
        is_whole = is_whole and len(arrays["words"]) == len(arrays["colors"]) == count
        return Hashes(self.source, **arrays) if is_whole else None

    def _check_record(self, record):
        """Record the images in a new directory, or check that a directory is of the same images."""
        path = self.directory / RECORD
        try:
            if not path.exists():
                self.directory.mkdir(parents=True, exist_ok=True)
                _check_empty(self.directory)
                with replacing(path) as partial:
                    partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            before = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(
                "`hashes` must be a directory that can be written. "
                f"Received: hashes={str(self.directory)!r} ({error})"
            ) from error
        except ValueError as error:
            raise ValueError(f"{str(path)!r} must be JSON. Received: {error}") from error
        if changed := differences(before, record):
            raise ValueError(
                "`hashes` must be a new directory, or one of the same images. "
                f"Received: hashes={str(self.directory)!r}, begun with others: {changed[0]}"
                + (f" and {len(changed) - 1} more" if changed[1:] else "")
            )


def _check_empty(directory):
    others = {path.name for path in directory.iterdir() if path.name[0] != "."} - {RECORD}
    # Another shard may have written the record just now.
    if others and not (directory / RECORD).exists():
        raise NotADirectoryError(f"it holds {min(others)}, but no {RECORD}")
