"""Digests of data, which are recorded with results, so that changes of the data are noticed."""

import hashlib
import os
import pathlib
import struct

import numpy as np
import tqdm

_BLOCK_BYTES = 4096
# Number of blocks read from the file of one image, and from a file of many images.
_BLOCKS_OF_IMAGE, _BLOCKS_OF_RECORDS = 3, 64
# Number of examples from which a progress bar is shown.
_SHOWN_FROM = 10_000
# Bytes before a record (its length, and a checksum of the length) and after it (its checksum).
_RECORD_HEAD, _RECORD_TAIL = 12, 4


def data_digest(attributes, examples, num_examples, files=()):
    """Return a digest of data. A copy of the files in another folder has the same digest.

    TFRecord files are identified by the checksums of their records. Other files are identified by
    their sizes and by blocks of 4 KiB at equal distances, from the first to the last block.

    Args:
        attributes: tuple of text and numbers that describes the data, such as the class names.
        examples: iterable with one tuple per example, of text, bytes and paths: the id, the label,
            and the files of the example unless they are in `files`.
        num_examples: number of examples.
        files: paths of files that contain many examples each.

    Returns:
        A string of 16 hexadecimal digits.

    Example:
    >>> from keras_vit.data.digest import data_digest
    >>> path = tmp_path / "a.png"
    >>> _ = path.write_bytes(b"one picture")
    >>> before = data_digest((), [("a.png", path)], 1)
    >>> _ = path.write_bytes(b"two picture")
    >>> data_digest((), [("a.png", path)], 1) == before
    False
    """
    digest = hashlib.sha256()

    def add(*parts):
        for part in parts:
            # The length separates the parts: "ab", "c" and "a", "bc" have different digests.
            digest.update(len(part).to_bytes(8) + part)

    add(repr(attributes).encode())
    for file in files:
        add(pathlib.Path(file).name.encode(), _identify(pathlib.Path(file)))
    for example in tqdm.tqdm(
        examples, "digest", num_examples, unit="image", disable=num_examples < _SHOWN_FROM
    ):
        add(*map(_as_bytes, example))
    return digest.hexdigest()[:16]


def scan_records(path):
    """Return the number of records of a TFRecord file, and a digest of all lengths and checksums.

    The contents of the records are not read.

    Raises:
        ValueError: if the file is damaged or of another format.
    """
    path = pathlib.Path(path)
    size, offset, count, digest = path.stat().st_size, 0, 0, hashlib.sha256()
    # With a buffer, Python would read the contents of the records.
    with path.open("rb", buffering=0) as file:
        while offset < size:
            file.seek(offset)
            head = file.read(_RECORD_HEAD)
            is_whole = len(head) == _RECORD_HEAD
            offset += len(head) + (struct.unpack("<Q", head[:8])[0] if is_whole else size)
            file.seek(min(offset, size))
            digest.update(head + file.read(_RECORD_TAIL))
            offset += _RECORD_TAIL
            count += 1
    if offset != size:
        raise ValueError(
            "`tfrecord:PATTERN` must name complete TFRecord files without compression. "
            f"Received: {str(path)!r}, which is damaged after {count - 1} records"
        )
    return count, digest.digest()


def _identify(path):
    try:
        return scan_records(path)[1]
    except (OSError, ValueError):
        return _sample(path, _BLOCKS_OF_RECORDS)


def _as_bytes(part):
    if isinstance(part, pathlib.Path):
        return _sample(part, _BLOCKS_OF_IMAGE)
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


def _sample(path, num_blocks):
    """Return the size and some blocks of a file, or no bytes if the file cannot be read."""
    try:
        with pathlib.Path(path).open("rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            blocks = [size.to_bytes(8)]
            if size <= num_blocks * _BLOCK_BYTES:
                file.seek(0)
                return b"".join([*blocks, file.read()])
            for start in np.linspace(0, size - _BLOCK_BYTES, num_blocks, dtype="int64").tolist():
                file.seek(start)
                blocks.append(file.read(_BLOCK_BYTES))
            return b"".join(blocks)
    except OSError:
        return b""
