"""Checks of the splits of a dataset: copies, contradicting labels, missing classes."""

import hashlib
import itertools
import logging

from keras_vit.data.fingerprints import DIGEST_BYTES, fingerprints, name_some

_EMPTY = hashlib.blake2b(digest_size=DIGEST_BYTES).hexdigest()


def find_copies(images, held_out):
    """Return the `(id, other_id)` of images of a held-out split that are byte-identical to others.

    Arguments are `Fingerprints`. `keras_vit.data.find_duplicates` finds images that look alike.
    """
    pairs = zip(reversed(images.digests), reversed(images.ids), strict=True)
    # The first image with each digest; empty files are not copies.
    twins = {digest: id for digest, id in pairs if digest != _EMPTY}
    pairs = zip(held_out.ids, held_out.digests, strict=True)
    return [(id, twins[digest]) for id, digest in pairs if digest in twins]


def find_two_labels(images):
    """Return the `(id, first_id)` of byte-identical images with different labels.

    The argument is a list of `Fingerprints`.
    """
    first, found = {}, []
    for digest, label, id in itertools.chain.from_iterable(split.rows() for split in images):
        known_label, known_id = first.setdefault(digest, (label, id))
        if digest != _EMPTY and label != known_label:
            found.append((id, known_id))
    return found


def check_splits(sources, find_fingerprints=None, upright=False):
    """Log warnings of copies in two splits, of copies with two labels, and of missing classes.

    Photographs that are not stored upright are counted, unless they are turned.

    All images are read. Only folders and TFRecord files are checked.

    Args:
        sources: dictionary from names of splits to `Source`s; the first is the training split.
        find_fingerprints: dictionary from names of splits to functions that return their
            `Fingerprints`; those of other splits are computed.
        upright: whether photographs are turned upright.
    """
    every = sources.values()
    if any(source.version or not (source.path_of or source.record_files) for source in every):
        return
    known = find_fingerprints or {}
    found = {
        name: known[name]() if name in known else fingerprints(source)
        for name, source in sources.items()
    }
    _warn_of_copies(found)
    _warn_of_missing_classes(found, sources)
    if not (upright or any(source.has_masks for source in sources.values())):
        warn_of_turned(found.values())


def warn_of_turned(images):
    """Log how many images of a list of `Fingerprints` are not stored upright."""
    if turned := sum(split.num_turned for split in images):
        logging.getLogger("keras_vit").warning(
            "not stored upright (EXIF orientation), and not turned: %d of %d images. "
            "`keras-vit predict` turns them; so do `train`, `evaluate` and `fewshot` with "
            "`--upright`, and `load` with `upright=True`",
            *(turned, sum(len(split.ids) for split in images)),
        )


def _warn_of_copies(found):
    log = logging.getLogger("keras_vit")
    for (name, images), (other, held_out) in itertools.combinations(found.items(), 2):
        if copies := find_copies(images, held_out):
            log.warning(
                "%d of %d images of the split %s are copies of images of %s: %s. Delete them, or "
                "list them with `keras-vit deduplicate DATA DATA --train-split %s --test-split %s "
                "--output FILE` for `train --exclude FILE`",
                *(len(copies), len(held_out.ids), other, name, _name_pairs(copies), name, other),
            )
    if copies := find_two_labels(found.values()):
        log.warning("copies with different labels: %d (%s)", len(copies), _name_pairs(copies))


def _warn_of_missing_classes(found, sources):
    for split, images in found.items():
        there, class_names = set(images.labels), sources[split].class_names
        missing = [name for label, name in enumerate(class_names) if str(label) not in there]
        has_one_label = not (sources[split].has_several_labels or sources[split].has_masks)
        if missing and has_one_label:
            logging.getLogger("keras_vit").warning(
                "classes without an image: %d of %d in the split %s: %s",
                *(len(missing), len(class_names), split, name_some(missing)),
            )


def _name_pairs(pairs):
    return name_some([f"{id} = {other}" for id, other in pairs])
