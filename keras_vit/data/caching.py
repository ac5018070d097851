"""Encoded images that are kept after they have been read once."""

import dataclasses
import json
import pathlib

from keras_vit.core.files import replacing

# Records next to a cache which images it was made of.
_RECORD = ".keras_vit.json"


def cached(source, place, find_fingerprints):
    """The same examples, whose images are kept as they are encoded once they have been read.

    Args:
        source: a `Source`.
        place: `"memory"`, or the path of a file: a new one, or one that was made of these examples.
        find_fingerprints: function that returns the `Fingerprints` of the examples; called for a
            file.

    Returns:
        A `Source`.

    Raises:
        ValueError: if the file cannot be made, another process is writing it, or it was made of
            other examples.
    """
    path = ""
    if place != "memory":
        path = str(pathlib.Path(place).expanduser())
        _check_file(pathlib.Path(path))
        _check_examples(pathlib.Path(path), find_fingerprints().digest())
    examples = source.encoded().cache(path)
    return dataclasses.replace(source, examples=examples, read=lambda payload: payload)


def _check_examples(path, digest):
    record = path.with_name(path.name + _RECORD)
    # Whoever opens the file first decides what it is made of, long before it is written.
    if not record.exists() and not path.with_name(f"{path.name}.index").exists():
        with replacing(record) as partial:
            partial.write_text(json.dumps({"digest": digest}) + "\n")
    try:
        made_of = json.loads(record.read_text())["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        made_of = None
    if made_of != digest:
        raise ValueError(
            "`cache` must be a new file, or one that was made of the same images and labels. "
            f"Received: cache={str(path)!r}, which was made of "
            f"{'others' if made_of else 'images that are not recorded'}; delete {path.name}* to "
            "make it anew"
        )


def _check_file(path):
    """TensorFlow would stop at these only when it writes, after an epoch or again and again."""
    locks = list(path.parent.glob(f"{path.name}*.lockfile"))
    probe = path.with_name(f".{path.name}.probe")
    try:
        probe.touch()
        probe.unlink()
        is_possible = not (path.is_dir() or locks)
    except OSError:
        is_possible = False
    if not is_possible:
        raise ValueError(
            "`cache` must be `memory` or the path of a file in a folder that can be written, and "
            "that no other run is writing (a stopped one leaves a `.lockfile`; remove it). "
            f"Received: cache={str(path)!r}"
        )
