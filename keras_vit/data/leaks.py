"""What makes the splits of a dataset mislead: copies, two labels of one image, missing classes."""

import hashlib
import itertools
import logging

from keras_vit.data.fingerprints import DIGEST_BYTES, fingerprints, name_some

_EMPTY = hashlib.blake2b(digest_size=DIGEST_BYTES).hexdigest()


def find_copies(images, held_out):
    """Find the images of a held-out split that are byte-identical to images of another.

    Pictures that look alike are found by `keras_vit.data.find_duplicates`.

    Args:
        images: `Fingerprints` of the other split.
        held_out: `Fingerprints` of a validation or test split.

    Returns:
        A list of `(id, other_id)`.
    """
    twins = _first_ids(images)
    return [
        (id, twins[digest])
        for id, digest in zip(held_out.ids, held_out.digests, strict=True)
        if digest in twins
    ]


def find_two_labels(images):
    """Find byte-identical images that have different labels.

    Args:
        images: list of `Fingerprints`.

    Returns:
        A list of `(id, first_id)`.
    """
    first, found = {}, []
    for row in itertools.chain.from_iterable(split.rows() for split in images):
        digest, label, id = row
        known_label, known_id = first.setdefault(digest, (label, id))
        if digest != _EMPTY and label != known_label:
            found.append((id, known_id))
    return found


def check_splits(sources, find_fingerprints=None):
    """Log warnings of copies between splits, of copies with two labels, and of missing classes.

    All files or TFRecords are read. Datasets that are neither are not checked.

    Args:
        sources: dictionary of `Source`s by names of splits; the first is trained on.
        find_fingerprints: function that returns the `Fingerprints` of the first.
    """
    if any(source.path_of is None and not source.in_records for source in sources.values()):
        return
    trained, *others = sources
    found = {trained: find_fingerprints() if find_fingerprints else fingerprints(sources[trained])}
    found |= {name: fingerprints(sources[name]) for name in others}
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
        text = "%d images are copies of images with another label: %s"
        log.warning(text, len(copies), _name_pairs(copies))
    for name, images in found.items():
        there = set(images.labels)
        class_names = sources[name].class_names
        missing = [known for label, known in enumerate(class_names) if str(label) not in there]
        if missing:
            text = "%d of the %d classes have no image in the split %s: %s"
            log.warning(text, len(missing), len(class_names), name, name_some(missing))


def _first_ids(images):
    """The id of the first image with each digest; empty files are nobody's copies."""
    pairs = zip(reversed(images.digests), reversed(images.ids), strict=True)
    return {digest: id for digest, id in pairs if digest != _EMPTY}


def _name_pairs(pairs):
    return name_some([f"{id} = {other}" for id, other in pairs])
