"""Download weights from the Hugging Face Hub: `hf://ORG/NAME[@REVISION][/FILE]`."""

import contextlib
import glob
import pathlib
import re

from keras_vit.checkpoints.archives import NAMES_IN_DIRECTORY
from keras_vit.checkpoints.configuration import (
    JSON_FILES,
    PICKLED_INDEX,
    SHARD_INDEX,
)

HUB = "hf://"
# The revision of a pull request contains slashes.
ADDRESS = re.compile(
    r"hf://(?!.*\.\.)(?P<repository>[^/@]+/[^/@]+)"
    r"(@(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+))?(/(?P<file>.+))?"
)
# Patterns of the names of shards, by the name of their index.
SHARDS = {SHARD_INDEX: "model-*.safetensors", PICKLED_INDEX: "pytorch_model-*.bin"}


def fetch_from_hub(address):
    """Download weights and the JSON files next to them, unless cached; return the weights' path.

    The first of `NAMES_IN_DIRECTORY` that the repository has is read. All files belong to one
    commit. `huggingface_hub` manages the cache, interrupted downloads, `HF_ENDPOINT`,
    `HF_HUB_OFFLINE` and tokens.

    Args:
        address: `hf://ORG/NAME`, optionally with a branch, tag or commit, and with a file, such as
            `hf://ORG/NAME@main/folder/model.safetensors`.

    Raises:
        ValueError: if the address has another form, or the files cannot be downloaded.
    """
    from huggingface_hub import snapshot_download

    match = ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(
            "an address on the Hub must be `hf://ORG/NAME[@REVISION][/FILE]`. "
            f"Received: {address!r}"
        )
    names = (match["file"],) if match["file"] else NAMES_IN_DIRECTORY
    for name in names:
        path = pathlib.PurePosixPath(name)
        siblings = [*JSON_FILES, *filter(None, [SHARDS.get(path.name)])]
        patterns = [glob.escape(name), *(str(path.with_name(file)) for file in siblings)]
        with as_hub_error(address):
            snapshot = snapshot_download(
                match["repository"], revision=match["revision"], allow_patterns=patterns
            )
        weights = pathlib.Path(snapshot) / name
        if weights.is_file():
            return weights
    raise ValueError(
        f"the repository on the Hub must have {' or '.join(names)}. Received: {address!r}"
    )


@contextlib.contextmanager
def as_hub_error(name):
    """Turn any error of the Hub into a `ValueError` whose one line names the repository."""
    try:
        yield
    # huggingface_hub also raises errors of its HTTP library.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"the repository on the Hub cannot be used. Received: {name!r} ({reason})"
        ) from error


def parse_repository(name):
    """Return a repository, `ORG/NAME`, and its branch, or `None` for the default branch.

    Args:
        name: `ORG/NAME` or `ORG/NAME@BRANCH`, optionally after `hf://`.

    Raises:
        ValueError: if the name has another form.

    Example:
    >>> parse_repository("hf://org/flowers@v2")
    ('org/flowers', 'v2')
    """
    match = ADDRESS.fullmatch(f"{HUB}{str(name).removeprefix(HUB)}")
    if match is None or match["file"] is not None:
        raise ValueError(
            f"a repository on the Hub must be `ORG/NAME[@BRANCH]`. Received: {str(name)!r}"
        )
    return match["repository"], match["revision"]


def is_from_repository(path, address):
    """Return whether a file was downloaded from the repository of an `hf://` address."""
    repository = ADDRESS.fullmatch(address)["repository"]
    return f"models--{repository.replace('/', '--')}" in path.parts
