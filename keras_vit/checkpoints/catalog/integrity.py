"""Whether a downloaded file is complete, and equals the server's copy."""

import base64
import hashlib
import http.client
import json
import re
import urllib.request
import zipfile

import h5py

_SECONDS = 30


def published_md5(url):
    """Return the MD5 digest that a server states for a file; `None` if it states none.

    Google Storage does, for files that were uploaded in one piece.
    """
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            hashes = answer.headers.get_all("x-goog-hash") or ()
    except (OSError, http.client.HTTPException):
        return None
    found = re.search("md5=([A-Za-z0-9+/]{22}==)", ", ".join(hashes))
    return found and base64.b64decode(found[1])


def md5(path):
    """Return the MD5 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").digest()


def is_whole(path, suffix):
    """Whether a downloaded file is a complete one of this suffix."""
    try:
        return suffix not in _CHECKS or _CHECKS[suffix](path)
    except (ValueError, TypeError, LookupError, AttributeError):
        return False


def _has_recorded_length(path):
    """Whether a file has the length that its header records: 8 bytes, JSON, the arrays."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, size)))
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name[:2] != "__"]
    return size == 8 + length + max(ends)


def _opens_as_hdf5(path):
    try:
        h5py.File(path, "r").close()
    except OSError:
        return False
    return True


# Checks of downloaded files, by suffix. Each returns whether a file is complete, or fails on it.
_CHECKS = {
    ".npz": zipfile.is_zipfile,
    ".keras": zipfile.is_zipfile,
    ".safetensors": _has_recorded_length,
    ".h5": _opens_as_hdf5,
    ".json": lambda path: isinstance(json.loads(path.read_bytes()), dict),
}
