"""WebDataset: tar files of images and labels, such as `001.jpg` and `001.cls`."""

import collections
import dataclasses
import functools
import itertools
import json
import pathlib
import re
import tarfile

import numpy as np

from keras_vit.data.sources.examples import choose_examples, reading
from keras_vit.data.sources.folder import SUFFIXES, short_names
from keras_vit.data.sources.patterns import LABEL_FILES, find_files
from keras_vit.data.sources.records import read_class_names
from keras_vit.data.sources.source import from_arrays

_TAR = re.compile(r".*\.tar", re.IGNORECASE)
_IMAGES = {*SUFFIXES, ".npy"}
_LABELS = (".cls", ".json")


def webdataset(pattern, split, shard=(0, 1)):
    """Find the images of a split in tar files, where an example is all files of one name.

    An example has an image, and its label in `.cls` (a number or a text), or in `.json` as `label`.
    The files are indexed once per process, and images are then read from their places in the files.
    A file `labels.txt` in the same directory may have one class name per line.

    Args:
        pattern: as in `find_files`. Without `{split}`, every ten consecutive examples of a file are
            divided 7 : 1 : 2.
        split: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source`; the id of an example is `FILE#NAME`, with the name of the image in the file.

    Raises:
        ValueError: as `find_files`, or if a file is damaged or compressed.
    """
    present, options = find_files(pattern, "webdataset", _TAR)
    all_files = [*itertools.chain(*present.values())]
    folders = {pathlib.Path(file).parent for file in all_files}
    has_names = any((folder / name).is_file() for folder in folders for name in LABEL_FILES)

    def index(file):
        return _index(file, pathlib.Path(file).stat().st_mtime_ns)

    files, counts, numbers, labels, names = choose_examples(
        present,
        split,
        lambda file: index(file).labels,
        read_class_names(all_files) if has_names else None,
    )
    indexes = [*map(index, files)]
    for found in indexes:
        options["left_out"].update(found.left_out)
    ends, short = np.cumsum(counts), short_names(all_files)

    def locate(number):
        file = int(np.searchsorted(ends, number, side="right"))
        return file, number - ends[file]

    def find_id(number):
        file, position = locate(number)
        return f"{short[files[file]]}#{indexes[file].names[position]}"

    def read(number):
        file, position = locate(number)
        with pathlib.Path(files[file]).open("rb") as stream:
            stream.seek(indexes[file].offsets[position])
            return stream.read(indexes[file].sizes[position])

    return from_arrays(
        np.arange(sum(counts)).astype("S"),
        labels,
        names,
        find_id,
        np.concatenate(numbers)[shard[0] :: shard[1]],
        read=reading(read),
        all_labels=labels,
        record_files=tuple(files.tolist()),
        **options,
    )


@dataclasses.dataclass(frozen=True)
class _Index:
    """The examples of a tar file: names, places and labels of the images."""

    names: list[str]
    offsets: np.ndarray
    sizes: np.ndarray
    labels: list
    left_out: collections.Counter


@functools.cache
def _index(path, modified):
    """Return the `_Index` of a tar file, which was modified at this time."""
    images, labels, left_out, end = {}, collections.defaultdict(dict), collections.Counter(), 0
    try:
        with pathlib.Path(path).open("rb") as stream, tarfile.open(None, "r:", stream) as tar:
            for member in filter(tarfile.TarInfo.isfile, tar):
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                folder, slash, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                key, suffix = folder + slash + stem, f".{suffix.lower()}"
                if suffix in _IMAGES and stem and key not in images:
                    images[key] = member.name, member.offset_data, member.size
                elif suffix in _LABELS:
                    stream.seek(member.offset_data)
                    labels[key][suffix] = stream.read(member.size).decode()
                else:
                    left_out[f"not an image or a label ({suffix})"] += 1
                # Otherwise `tarfile` would keep all members.
                tar.members = []
            stream.seek(end)
            # `tarfile` stops without an error at a file that ends between two members.
            if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise ValueError("the end is missing")
        texts = [_label(labels.get(key, {})) for key in images]
    except (tarfile.TarError, ValueError) as error:
        raise ValueError(
            "`webdataset:PATTERN` must name complete tar files without compression. "
            f"Received: {path!r}, {error}"
        ) from error
    names, offsets, sizes = zip(*images.values(), strict=True) if images else ((), (), ())
    offsets, sizes = np.array(offsets, "int64"), np.array(sizes, "int64")
    return _Index(list(names), offsets, sizes, texts, left_out)


def _label(files):
    """Return the label in the text of `.cls`, or else of `.json`: a number, a text or `None`."""
    if text := files.get(".cls", "").strip():
        return int(text) if re.fullmatch(r"-?\d+", text) else text
    label = json.loads(files.get(".json", "{}")).get("label")
    return label if isinstance(label, (int, str)) else None
