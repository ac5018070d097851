"""Find the file of weights given as a path, an address, or a name of the catalog or of AugReg."""

import hashlib
import os
import pathlib
import urllib.error
import urllib.parse
import uuid

import keras

from keras_vit.checkpoints.archives import FILE_SUFFIXES
from keras_vit.checkpoints.archives.npz import what_it_is
from keras_vit.checkpoints.catalog import CHECKPOINTS, find_checkpoint
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.hub import HUB, fetch_from_hub
from keras_vit.checkpoints.catalog.integrity import is_whole, md5, published_md5
from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    MODEL,
    PROCESSOR,
    TF_MODEL,
    has_configuration,
)
from keras_vit.checkpoints.trained.runs import find_model
from keras_vit.core.files import exists

GOOGLE_STORAGE = "https://storage.googleapis.com"
MIRROR = "KERAS_VIT_MIRROR"
FILES_OF_DIRECTORY = (MODEL, TF_MODEL, *CONFIGURATION)
# Answers of servers that do not have a file.
NOT_THERE = (403, 404, 410)


def files_of(path):
    """List the files of a model, `path` first, with those that would be read if they existed."""
    if path.is_dir() or path.suffix == ".json":
        directory = path if path.is_dir() else path.parent
        shards = sorted(directory.glob("*.safetensors"))
        return [path, *shards, *(directory / name for name in FILES_OF_DIRECTORY)]
    if has_configuration(path):
        return [path, *(path.with_name(name) for name in CONFIGURATION)]
    return [path]


def find_file(weights, variant=None, argument="path"):
    """Return the file of some weights, downloaded if necessary.

    `weights` is a path, also of a run's directory (its best model); an `https://`, `gs://` or
    `hf://` address; a name of `list_checkpoints()`, or with a variant its tag alone; or a name of
    the AugReg release. Error messages name `argument`.
    """
    text = str(weights)
    if not isinstance(weights, (str, os.PathLike)) or not text:
        raise ValueError(f"`{argument}` must be a name or a path. Received: {argument}={weights!r}")
    if "://" in text:
        return fetch(text)
    if "-aug_" in text and "/" not in text and not exists(text):
        file = parse_augreg(text)
        if variant not in (None, file.variant):
            raise ValueError(
                f"`{argument}` must be a file of {variant}. Received: {argument}={text!r}, "
                f"which is of {file.variant}"
            )
        return fetch(file.url)
    path = find_model(weights)
    tags = {row.tag for row in CHECKPOINTS if row.variant == variant}
    names = tags | {row.name for row in CHECKPOINTS}
    if text not in names and (path.name.endswith(FILE_SUFFIXES) or exists(path)):
        return path
    return fetch(find_checkpoint(text, variant, argument).url)


def fetch(url):
    """Download a file into Keras's cache with a progress bar, unless it is there; return its path.

    An `hf://` address is that of `fetch_from_hub`.

    The file appears under its name when it is complete; an interrupted download starts again. The
    `config.json` and the `preprocessor_config.json` next to a `.safetensors` or `.h5` file are
    downloaded first, if there are any. The environment variable `KERAS_VIT_MIRROR` replaces the
    address https://storage.googleapis.com.
    """
    if url.startswith(HUB):
        return fetch_from_hub(url)
    url = _over_https(url)
    target = cache_path(url)
    if not target.is_file():
        if has_configuration(target):
            _download_configuration(url)
        _download(url, target)
    return target


def _over_https(url):
    return url.replace("gs://", f"{GOOGLE_STORAGE}/", 1) if url.startswith("gs://") else url


def cache_path(url):
    """Return the `pathlib.Path` in Keras's cache for a file of an address; see `fetch`."""
    url = _over_https(url)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http") or not pathlib.PurePosixPath(parts.path).name:
        raise ValueError(
            f"an address must be `https://` or `gs://` and end with a file. Received: {url!r}"
        )
    # The name and the password of a user are not part of the place.
    host = parts.netloc.rpartition("@")[2].replace(":", "_")
    place = pathlib.PurePosixPath(urllib.parse.unquote(parts.path).lstrip("/"))
    words = {host, *place.parts, place.name}
    if {"", ".", ".."} & words or {"\\", "\0"} & {*host, *str(place)}:
        raise ValueError(
            "an address must have a server, and must not contain `..` or a backslash. "
            f"Received: {url!r}"
        )
    if parts.query:
        # A version of the file, such as `?rev=2`.
        place = place.parent / hashlib.sha256(parts.query.encode()).hexdigest()[:12] / place.name
    host = "" if url.startswith(f"{GOOGLE_STORAGE}/") else host
    return _home() / "keras_vit" / host / place


def _home():
    return pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()


def _download_configuration(url):
    """Download the JSON files next to a file of weights, if there are any."""
    parts = urllib.parse.urlsplit(url)
    for name in (*CONFIGURATION, PROCESSOR):
        path = str(pathlib.PurePosixPath(parts.path).with_name(name))
        sibling = urllib.parse.urlunsplit(parts._replace(path=path))
        target = cache_path(sibling)
        if not target.is_file():
            _download(sibling, target, is_optional=True)


def _download(url, target, is_optional=False):
    home, mirror = _home(), os.environ.get(MIRROR)
    is_google = url.startswith(f"{GOOGLE_STORAGE}/")
    if mirror and is_google:
        url = mirror.rstrip("/") + url.removeprefix(GOOGLE_STORAGE)
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Keras writes to the name itself: after a killed process, it would take a part for a file.
        part = keras.utils.get_file(
            f"{target.name}.{uuid.uuid4().hex}.part",
            origin=url,
            cache_dir=str(home),
            cache_subdir=str(target.parent.relative_to(home)),
            force_download=True,
        )
    # Keras raises an `Exception` for an address that does not answer.
    except Exception as error:
        reason = error.__context__ or error
        if isinstance(reason, urllib.error.HTTPError):
            # Keras leaves the connection open.
            reason.close()
            if is_optional and reason.code in NOT_THERE:
                return
        raise ValueError(
            f"a checkpoint must be at an address that can be reached. Received: {url} ({reason}). "
            f"Without a network, put the file at {target}, or set {MIRROR} to the address of a "
            f"copy of {GOOGLE_STORAGE}"
        ) from None
    part = pathlib.Path(part)
    what = what_it_is(part)
    if what is not None and is_optional:
        # Some servers answer with a page instead of an error.
        part.unlink()
        return
    if what is None and not is_whole(part, target.suffix):
        what = f"which is not a complete {target.suffix} file"
    stated = published_md5(url) if what is None and is_google else None
    if stated is not None and md5(part) != stated:
        what = "which arrived with another MD5 digest than the server states"
    if what is not None:
        part.unlink()
        raise ValueError(f"a checkpoint must be at the address. Received: {url}, {what}")
    part.replace(target)
