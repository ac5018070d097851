"""A cache of encoded images."""

import json
import pathlib

from keras_vit.core.files import replacing

# Suffix of the file next to a cache with the digest of its images.
_RECORD = ".keras_vit.json"


def cached(source, place):
    """Return the same examples, whose encoded images are kept after the first pass.

    Args:
        source: a `Source`.
        place: `"memory"`, or the path of a new file or of one made from these examples.

    Returns:
        A `Source`.

    Raises:
        ValueError: if it was made from other examples.
        OSError: if the folder cannot be written to.
    """
    path = ""
    if place != "memory":
        path = pathlib.Path(place).expanduser()
        _check_examples(path, source.digest())
    return source.holding(source.encoded().cache(str(path)))


def _check_examples(path, digest):
    record = path.with_name(path.name + _RECORD)
    # Recorded by the first process, long before the cache is complete.
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
            "create it again"
        )
