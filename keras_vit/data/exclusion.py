"""Leave examples out of a dataset by their ids."""

import logging
import os
import pathlib

from keras_vit.core.files import replacing
from keras_vit.core.text import name_some
from keras_vit.data.deduplication.copies import Duplicates, Groups


def leave_out(source, ids, name, split, find_every):
    """Leave out the examples with some ids, and log their number.

    Args:
        source: a `Source`.
        ids: list of ids, or the path of a file of them.
        name: name of the dataset, for the log.
        split: name of the split, for the log.
        find_every: function that returns a `Source` of all examples of the dataset.

    Returns:
        A `Source`.

    Raises:
        ValueError: if the file is not UTF-8.
    """
    if isinstance(ids, (str, pathlib.Path)):
        ids = read_ids(ids)
    elif ids is None or not len(ids := list(ids)):
        return source
    found = source.find_numbers(ids)
    here = {source.find_id(number) for number in found}
    # An id starts like a comment if the name of its class does.
    ids = here | {id for id in ids if not f"{id} ".startswith("# ")}
    unknown = ids - here
    if unknown:
        every = find_every()
        unknown -= {every.find_id(number) for number in every.find_numbers(unknown)}
    logger = logging.getLogger("keras_vit")
    logger.info("%d of %d ids to exclude are in the split %s", len(here), len(ids), split)
    if unknown:
        text = "%d of the %d ids to exclude belong to no image of %s: %s"
        logger.warning(text, len(unknown), len(ids), name, name_some(sorted(map(repr, unknown))))
    return source.without(found)


def read_ids(path):
    """Return the lines of a file with one id per line, and perhaps comments, which start with `# `.

    Spaces around a line, a byte order mark and empty lines are ignored.
    """
    lines = pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    return [line.strip() for line in lines if line.strip()]


def write_ids(found: Groups | Duplicates, path: str | os.PathLike) -> None:
    """Write the ids of the images to leave out, one per line, for `load(..., exclude=path)`.

    Args:
        found: result of `find_duplicates` or `find_groups`.
        path: path of the file.

    Raises:
        ValueError: if an id does not fit on a line.
    """
    ids = sorted(found.ids)
    for id in ids:
        if id.splitlines() != [id] or id != id.strip():
            raise ValueError(f"An id must be one line without spaces around it. Received: {id!r}")
    path = pathlib.Path(path).expanduser()
    lines = [f"# {len(ids)} images that {found.reason}", *ids]
    with replacing(path) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
