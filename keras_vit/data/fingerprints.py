"""Fingerprints of images, independent of file names."""

import dataclasses
import hashlib

import tqdm

from keras_vit.core.text import printable
from keras_vit.data.images.decoding import is_turned

# Two sets of a million images have a collision with a probability below 1e-26.
DIGEST_BYTES = 16
_SHOWN_FROM = 10_000
# Elements of a dataset are several times slower to fetch one by one.
_BATCH_SIZE = 64
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of the images of a split, in order: tuples of strings of the same length.

    Args:
        ids: the id of each image.
        labels: the label of each image, as text.
        digests: the hexadecimal digest of the stored bytes of each image.
        num_turned: number of photographs whose EXIF orientation says that they are not upright.
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    digests: tuple[str, ...]
    num_turned: int = 0

    def __add__(self, other):
        names = [field.name for field in dataclasses.fields(self)]
        return Fingerprints(*(getattr(self, name) + getattr(other, name) for name in names))

    def rows(self):
        """Return lists `[digest, label, id]`, as they are written to files."""
        return [list(row) for row in zip(self.digests, self.labels, self.ids, strict=True)]

    def digest(self):
        """Return a digest of all images, their labels, ids and order."""
        return hashlib.sha256(repr(self.rows()).encode()).hexdigest()

    def ids_among(self, digests):
        """Return the ids of the images whose digests are in a set."""
        return [id for id, digest in zip(self.ids, self.digests, strict=True) if digest in digests]


def fingerprints(source):
    """Compute the fingerprints of the images of a split.

    Images are read but not decoded. Progress is shown for many images.

    Args:
        source: a `Source`.

    Returns:
        `Fingerprints`, without the files that cannot be read.

    Example:
    >>> source = keras_vit.data.find_source("digits", "test", classes=("0", "1"))
    >>> found = fingerprints(source)
    >>> found.ids[:2], found.labels[:2], len(set(found.digests))
    (('digits#55', 'digits#80'), ('0', '1'), 72)
    """
    ids, labels, digests, num_turned = [], [], [], 0
    # Files that cannot be read are skipped when images are loaded, too.
    batches = source.encoded().ignore_errors().batch(_BATCH_SIZE).as_numpy_iterator()
    total = source.num_examples
    with tqdm.tqdm(
        desc="fingerprints", total=total, unit="image", disable=total < _SHOWN_FROM
    ) as progress:
        for numbers, payloads, batch_labels in batches:
            ids += map(source.find_id, numbers.tolist())
            labels += [",".join(map(str, label.ravel().tolist())) for label in batch_labels]
            digests += [hashlib.blake2b(p, digest_size=DIGEST_BYTES).hexdigest() for p in payloads]
            num_turned += sum(isinstance(p, bytes) and is_turned(p) for p in payloads)
            progress.update(len(numbers))
    return Fingerprints(tuple(ids), tuple(labels), tuple(digests), num_turned)


def describe_changes(before, now):
    """Describe in one line how a split has changed.

    Args:
        before: `Fingerprints`.
        now: `Fingerprints`.

    Returns:
        A string.

    Example:
    >>> before = Fingerprints(("a.jpg", "b.jpg"), ("0", "1"), ("0f", "1f"))
    >>> now = Fingerprints(("b.jpg", "c.jpg"), ("1", "1"), ("2f", "3f"))
    >>> describe_changes(before, now)
    '1 image added (c.jpg), 1 removed (a.jpg), 1 with other bytes (b.jpg)'
    """
    old, new = ({row[2]: row[:2] for row in prints.rows()} for prints in (before, now))
    common = [id for id in new if id in old]
    changes = (
        ("added", [id for id in new if id not in old]),
        ("removed", [id for id in old if id not in new]),
        ("with other bytes", [id for id in common if old[id][0] != new[id][0]]),
        ("with another label", [id for id in common if old[id][1] != new[id][1]]),
    )
    parts = [f"{len(ids)} {{}}{what} ({name_some(ids)})" for what, ids in changes if ids]
    if not parts:
        return "the same images in another order"
    first = "image " if parts[0].startswith("1 ") else "images "
    return ", ".join([parts[0].format(first), *(text.format("") for text in parts[1:])])


def name_some(ids, count=_NAMED):
    """Return the first of some ids as printable text, with dots if there are more.

    Example:
    >>> name_some(["a", "b", "c"], count=2)
    'a, b, ...'
    """
    return ", ".join([*map(printable, ids[:count]), *(["..."] if len(ids) > count else [])])
