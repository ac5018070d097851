"""Held-out images that are trained on, too, as copies under other names."""

import collections
import functools
import hashlib
import logging
import pathlib

from keras_vit.data.fingerprints import fingerprints, name_some


def find_copies(source, held_out, find_fingerprints=None):
    """Find the images of a held-out split that are byte-identical to images that are trained on.

    Only files of one size are read, but all TFRecords. Pictures that look alike are found by
    `keras_vit.data.find_duplicates`.

    Args:
        source: the `Source` of the images that are trained on.
        held_out: the `Source` of a validation or test split.
        find_fingerprints: function that returns the `Fingerprints` of `source`.

    Returns:
        A list of `(id, trained_id)`; empty where examples are neither files nor TFRecords.
    """
    if source.in_records and held_out.in_records:
        trained = find_fingerprints() if find_fingerprints else fingerprints(source)
        tested = fingerprints(held_out)
        # The first of several copies.
        twins = dict(zip(reversed(trained.digests), reversed(trained.ids), strict=True))
        pairs = zip(tested.ids, tested.digests, strict=True)
        return [(id, twins[digest]) for id, digest in pairs if digest in twins]
    if source.path_of is None or held_out.path_of is None:
        return []
    by_size = collections.defaultdict(list)
    for number in source.numbers.tolist():
        by_size[_size(source.path_of(number))].append(number)
    found, digests = [], {}
    for number in held_out.numbers.tolist():
        path = held_out.path_of(number)
        size = _size(path)
        if size not in by_size:
            continue
        if size not in digests:
            # The first of several copies; a file that cannot be read is nobody's copy.
            digests[size] = {
                _digest(source.path_of(other)): source.find_id(other)
                for other in reversed(by_size[size])
            }
        twin = digests[size].get(_digest(path)) if size else None
        if twin is not None:
            found.append((held_out.find_id(number), twin))
    return found


def warn_of_copies(sources, find_fingerprints=None):
    """Log a warning for each held-out split that has copies of images that are trained on.

    Args:
        sources: dictionary of `Source`s, the first the one that is trained on, by names of splits.
        find_fingerprints: as in `find_copies`.
    """
    (trained, source), *others = sources.items()
    find_fingerprints = functools.cache(find_fingerprints or (lambda: fingerprints(source)))
    for name, held_out in others:
        copies = find_copies(source, held_out, find_fingerprints)
        if copies:
            named = name_some([f"{id} = {twin}" for id, twin in copies])
            logging.getLogger("keras_vit").warning(
                "%d of %d images of the split %s are copies of images of %s: %s. Delete them, or "
                "list them with `keras-vit deduplicate DATA DATA --train-split %s --test-split %s "
                "--output FILE` for `train --exclude FILE`",
                *(len(copies), held_out.num_examples, name, trained, named, trained, name),
            )


def _size(path):
    try:
        return pathlib.Path(path).stat().st_size
    except OSError:
        return None


def _digest(path):
    try:
        with pathlib.Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:
        return path
