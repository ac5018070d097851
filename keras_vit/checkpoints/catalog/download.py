"""Find or download weights, given a path, an address, or a name of the catalog or of AugReg."""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

import keras

from keras_vit.checkpoints.archives import NAMES_IN_DIRECTORY, WRITERS, open_archive
from keras_vit.checkpoints.catalog import CHECKPOINTS, find_checkpoint
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.hub import HUB, fetch_from_hub
from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    JSON_FILES,
    MODEL,
    TF_MODEL,
    TORCH_SUFFIXES,
    has_configuration,
    read_json,
)
from keras_vit.checkpoints.run_files import find_model
from keras_vit.core.files import exists

GOOGLE_STORAGE = "https://storage.googleapis.com"
MIRROR = "KERAS_VIT_MIRROR"
FILES_OF_DIRECTORY = (MODEL, TF_MODEL, *CONFIGURATION)
# HTTP status codes that mean that a server does not have a file.
MISSING_CODES = (403, 404, 410)


def files_of(path):
    """List the files that are read for a model, `path` first; some of them may not exist."""
    if path.is_dir() or path.suffix == ".json":
        directory = path if path.is_dir() else path.parent
        shards = sorted([*directory.glob("*.safetensors"), *directory.glob("pytorch_model*.bin")])
        return [path, *shards, *(directory / name for name in (*NAMES_IN_DIRECTORY, *JSON_FILES))]
    if has_configuration(path):
        return [path, *(path.with_name(name) for name in JSON_FILES)]
    return [path]


def find_file(weights, variant=None, argument="path"):
    """Return the path of weights, downloaded if necessary.

    `weights` is a path, where the directory of a run stands for the run's best model. Or it is an
    `https://`, `gs://` or `hf://` address, the name of a file of the AugReg release, or a name in
    `list_checkpoints()`. If `variant` is given, the part of this name after the slash is enough.
    `argument` is the name of the argument in error messages.
    """
    text = str(weights)
    if "://" in text:
        return fetch(text)
    path, names = pathlib.Path(text).expanduser(), {row.name for row in CHECKPOINTS}
    if {text, f"{variant}/{text}"}.isdisjoint(names) and exists(path):
        return find_model(path)
    if "-aug_" in text and "/" not in text:
        return fetch(parse_augreg(text).url)
    return fetch(find_checkpoint(text, variant, argument).url)


def fetch(url):
    """Download a file into Keras's cache, unless the cache has it; return the path of the file.

    `fetch_from_hub` downloads `hf://` addresses. A file gets its final name when it is complete; an
    interrupted download starts from the beginning. The JSON files next to a `.safetensors` or `.h5`
    file are downloaded first, if they exist. The environment variable `KERAS_VIT_MIRROR` replaces
    the address https://storage.googleapis.com.
    """
    if url.startswith(HUB):
        return fetch_from_hub(url)
    target = cache_path(url)
    if not target.is_file():
        url = _over_https(url)
        for name in JSON_FILES if has_configuration(target) else ():
            parts = urllib.parse.urlsplit(url)
            path = str(pathlib.PurePosixPath(parts.path).with_name(name))
            sibling = urllib.parse.urlunsplit(parts._replace(path=path))
            _download(sibling, cache_path(sibling), is_optional=True)
        _download(url, target)
    return target


def cache_path(url):
    """Return the path in Keras's cache for the file of an address; see `fetch`."""
    url = _over_https(url)
    parts = urllib.parse.urlsplit(url)
    # The path must not contain the name and the password of a user.
    host = parts.netloc.rpartition("@")[2].replace(":", "_")
    path = pathlib.PurePosixPath(urllib.parse.unquote(parts.path).lstrip("/"))
    words = {host, *path.parts, path.name}
    if (
        parts.scheme not in ("https", "http")
        or {"", ".", ".."} & words
        or {"\\", "\0"} & {*host, *str(path)}
    ):
        raise ValueError(
            "an address must begin with `https://` or `gs://` and a server, end with a file name, "
            f"and contain neither `..` nor a backslash. Received: {url!r}"
        )
    if parts.query:
        # A query may select a version of the file, such as `?rev=2`.
        path = path.parent / hashlib.sha256(parts.query.encode()).hexdigest()[:12] / path.name
    host = "" if url.startswith(f"{GOOGLE_STORAGE}/") else host
    home = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    return home / "keras_vit" / host / path


def _over_https(url):
    return url.replace("gs://", f"{GOOGLE_STORAGE}/", 1) if url.startswith("gs://") else url


def _download(url, target, is_optional=False):
    """Download a file to a temporary folder, check that it is complete, and move it to `target`."""
    mirror, is_google = os.environ.get(MIRROR), url.startswith(f"{GOOGLE_STORAGE}/")
    if mirror and is_google:
        url = mirror.rstrip("/") + url.removeprefix(GOOGLE_STORAGE)
    try:
        md5 = _stated_md5(url) if is_google else None
        target.parent.mkdir(parents=True, exist_ok=True)
        # Keras writes directly to the final name. If a process is killed, the next process would
        # take the incomplete file for a complete one.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            keras.utils.get_file(target.name, url, "", md5, cache_dir=folder, cache_subdir="")
            downloaded = pathlib.Path(folder) / target.name
            _check_complete(downloaded)
            downloaded.replace(target)
    # Keras raises a plain `Exception` if a server does not answer.
    except Exception as error:
        answer = error if isinstance(error, urllib.error.HTTPError) else error.__context__
        if isinstance(answer, urllib.error.HTTPError):
            # Keras leaves the connection open.
            answer.close()
            if is_optional and answer.code in MISSING_CODES:
                return
        raise ValueError(
            f"a complete file must be at the address. Received: {url} ({error}). Without a "
            f"network, put the file at {target}, or set {MIRROR} to the address of a copy of "
            f"{GOOGLE_STORAGE}"
        ) from error


def _stated_md5(url):
    """Return the MD5 digest in the headers of Google Storage; `None` for a composite file."""
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=30) as answer:
        hashes = ", ".join(answer.headers.get_all("x-goog-hash") or ())
    stated = re.search("md5=([A-Za-z0-9+/]{22}==)", hashes)
    return stated and base64.b64decode(stated[1]).hex()


def _check_complete(path):
    """Raise an error if a file cannot be opened in the format of its suffix."""
    if path.suffix == ".json":
        read_json(path)
    elif path.suffix == ".keras":
        zipfile.ZipFile(path).close()
    elif path.suffix in (*WRITERS, *TORCH_SUFFIXES):
        # Keep the file if torch is missing: loading it will raise the same error.
        with contextlib.suppress(ImportError):
            open_archive(path).close()
