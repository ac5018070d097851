"""The image files below a folder, and a count of the other files by reason."""

import collections
import os
import pathlib

from keras_vit.core.text import printable
from keras_vit.data.sources.division import RECORD

# Files with these suffixes are images; the decoder checks their bytes.
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
# Bytes needed to recognize a format, ISO media files (HEIC, AVIF) included.
_HEAD = 32
_DECODED = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")
_OTHER_FORMATS = {
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "JPEG 2000": (b"\0\0\0\x0cjP",),
    "JPEG XL": (b"\xff\x0a", b"\0\0\0\x0cJXL "),
    "HTML or XML": (b"<",),
    "a Git LFS pointer": (b"version https://git-lfs",),
}
_NO_IMAGES = ("HTML or XML", "a Git LFS pointer")
_ISO_BRANDS = {b"hei": "HEIC", b"hev": "HEIC", b"mif": "HEIC", b"msf": "HEIC", b"avi": "AVIF"}


def list_images(folder):
    """List the image files below a folder; linked folders are followed at every level.

    An image is recognized by its suffix or its first bytes: a JPEG may be called `.jfif`, `.JPE` or
    have no suffix.

    Args:
        folder: path of the folder.

    Returns:
        `(paths, left_out)`: sorted strings, and a `collections.Counter` of the other files by the
        reason for which they are left out. A hidden folder counts as one.
    """
    paths, left_out = [], collections.Counter()
    for path in _walk(pathlib.Path(folder), ()):
        reason = _reason_to_leave_out(path)
        if reason is None:
            paths.append(str(path))
        else:
            left_out[reason] += 1
    return sorted(paths), left_out


def describe_left_out(left_out):
    """Describe in one line what was left out, most frequent reason first.

    Args:
        left_out: a `collections.Counter` of `list_images`.

    Returns:
        A string, empty if nothing was left out.

    Example:
    >>> describe_left_out(collections.Counter({"not an image (.txt)": 2, "hidden": 1}))
    '3 files or folders are left out: 2 not an image (.txt), 1 hidden'
    """
    if not left_out:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    total = sum(left_out.values())
    what = "files or folders are" if total > 1 else "file or folder is"
    text = f"{total} {what} left out: {reasons}"
    # Reasons may contain names of folders.
    return printable(text.encode("utf-8", "backslashreplace").decode())


def _walk(folder, above):
    """Yield the files below a folder, and hidden folders instead of their files.

    Links to a parent folder are not followed.
    """
    place = os.path.realpath(folder)
    if place in above:
        return
    for entry in os.scandir(folder):
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _walk(pathlib.Path(entry.path), (*above, place))
        elif entry.name != RECORD:
            yield pathlib.Path(entry.path)


def _reason_to_leave_out(path):
    """Return why a file is left out, or `None` for an image in a supported format."""
    if path.name.startswith("."):
        return "hidden"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # TensorFlow cannot open it, and its id could not be written.
        return "name is not UTF-8"
    if not path.is_file():
        return "broken link" if path.is_symlink() else "not a regular file"
    if path.suffix.lower() in SUFFIXES:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return "not readable"
    if head.startswith(_DECODED) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return None
    return other_format(head) or f"not an image ({path.suffix or 'without a suffix'})"


def other_format(head):
    """Return the unsupported format that the first bytes of a file show, or `None`."""
    name = next((n for n, starts in _OTHER_FORMATS.items() if head.startswith(starts)), None)
    if head[4:8] == b"ftyp":
        name = _ISO_BRANDS.get(head[8:11])
    hint = "" if name in _NO_IMAGES else ": convert it to JPEG or PNG"
    return name and f"{name}, which is not decoded{hint}"


def other_format_of(path):
    """Return the same as `other_format` for a file; `None` if it cannot be read."""
    try:
        with pathlib.Path(path).open("rb") as file:
            head = file.read(_HEAD)
        return other_format(head) if head else "an empty file"
    except OSError:
        return None


def short_names(files):
    """Return for each file its name or, if names repeat, its path below the common folder.

    A name never leads out of a folder, so that it can name an output: it has no `..` and no root.
    """
    # Not resolved: several links may lead to one folder.
    paths = {file: pathlib.Path(os.path.normpath(pathlib.Path(file).absolute())) for file in files}
    counts = collections.Counter(path.name for path in paths.values())
    common = os.path.commonpath([path.parent for path in paths.values()])
    return {
        file: path.name if counts[path.name] == 1 else path.relative_to(common).as_posix()
        for file, path in paths.items()
    }
