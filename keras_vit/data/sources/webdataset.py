"""WebDataset: tar files of images and labels, such as `001.jpg` and `001.cls`."""

import collections
import functools
import itertools
import json
import pathlib
import re
import tarfile

import numpy as np

from keras_vit.data.sources.examples import choose_examples, numbered_source
from keras_vit.data.sources.folder import SUFFIXES, short_names
from keras_vit.data.sources.patterns import LABEL_FILES, find_files
from keras_vit.data.sources.records import read_class_names

_TAR = re.compile(r".*\.tar", re.IGNORECASE)
# Name and place of an image in a tar file.
_PLACE = [("name", object), ("offset", "int64"), ("size", "int64")]


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

    names = read_class_names(all_files) if has_names else None
    chosen = choose_examples(present, split, lambda file: index(file)[1], names)
    files, short = chosen.files.tolist(), short_names(all_files)
    for file in files:
        options["left_out"].update(index(file)[2])
    images = {file: index(file)[0] for file in files}

    def find_id(file, row):
        return f"{short[file]}#{images[file][row]['name']}"

    def read(file, row):
        with pathlib.Path(file).open("rb") as stream:
            stream.seek(images[file][row]["offset"])
            return stream.read(images[file][row]["size"])

    return numbered_source(chosen, find_id, read, shard, record_files=tuple(files), **options)


@functools.cache
def _index(path, modified):
    """Find the examples of a tar file. A file that is `modified` later is indexed again.

    Returns:
        `(images, labels, left_out)`: an array of `_PLACE`, a list of the labels, and a count of the
        other files by reason.
    """
    images, labels, left_out, end = {}, collections.defaultdict(dict), collections.Counter(), 0
    try:
        with pathlib.Path(path).open("rb") as stream, tarfile.open(None, "r:", stream) as tar:
            for member in tar:
                size = member.size if member.isreg() else 0
                end = member.offset_data + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if member.isdir():
                    continue
                folder, slash, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                key, suffix = folder + slash + stem, f".{suffix.lower()}"
                if not member.isreg():
                    left_out["a link in a tar file"] += 1
                elif suffix in SUFFIXES and stem and key not in images:
                    images[key] = member.name, member.offset_data, member.size
                elif suffix in (".cls", ".json"):
                    stream.seek(member.offset_data)
                    # A second image of the same name is left out, and so is its label.
                    labels[key].setdefault(suffix, stream.read(member.size).decode())
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
    return np.array([*images.values()], _PLACE), texts, left_out


def _label(files):
    """Return the label in the text of `.cls`, or else of `.json`: a number, a text or `None`."""
    if text := files.get(".cls", "").strip():
        return int(text) if re.fullmatch(r"-?\d+", text) else text
    contents = json.loads(files.get(".json", "{}"))
    label = contents.get("label") if isinstance(contents, dict) else None
    return label if isinstance(label, (int, str)) else None
