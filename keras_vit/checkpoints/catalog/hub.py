"""Weights in repositories of the Hugging Face Hub: `hf://ORG/NAME[@REVISION][/FILE]`."""

import importlib.util
import json
import pathlib
import re

from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    MODEL,
    PROCESSOR,
    SHARD_INDEX,
    TF_MODEL,
    has_configuration,
)

HUB = "hf://"
# Revisions of pull requests contain slashes.
ADDRESS = re.compile(
    r"hf://(?P<repository>[^/@]+/[^/@]+)"
    r"(@(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+))?(/(?P<file>.+))?"
)
# The first of these that a repository has is read.
WEIGHTS = (MODEL, SHARD_INDEX, TF_MODEL)
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "flax_model.msgpack")


def fetch_from_hub(address):
    """Download the files of some weights, unless they are in the Hub's cache; return their path.

    These are the weights (`.safetensors`, one file or shards, rather than `tf_model.h5`) and the
    JSON files next to them. The cache, interrupted downloads, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and
    tokens are those of `huggingface_hub`.

    Args:
        address: `hf://ORG/NAME`, and if needed a branch, tag or commit and a file, such as
            `hf://ORG/NAME@main/folder/model.safetensors`.

    Raises:
        ValueError: if the address has another form, or the Hub does not give the files.
    """
    match = ADDRESS.fullmatch(address)
    if match is None or ".." in address:
        raise ValueError(
            "an address on the Hub must be `hf://ORG/NAME[@REVISION][/FILE]`. "
            f"Received: {address!r}"
        )
    check_package(address)
    repository = _Repository(address, match["repository"], match["revision"])
    return repository.file(match["file"]) if match["file"] else repository.weights()


def check_package(address):
    """Raise an error if the package that talks to the Hub is not installed."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ValueError(
            "`hf://` needs the package huggingface_hub: pip install 'keras-vit[hub]'. "
            f"Received: {address!r}"
        )


def parse_repository(name):
    """Return the name of a repository, `ORG/NAME`, and its branch, `None` for the default one.

    Args:
        name: `ORG/NAME` or `ORG/NAME@BRANCH`, also after `hf://`.

    Raises:
        ValueError: if the name has another form, or huggingface_hub is not installed.

    Example:
    >>> parse_repository("hf://org/flowers@v2")
    ('org/flowers', 'v2')
    """
    match = ADDRESS.fullmatch(f"{HUB}{str(name).removeprefix(HUB)}")
    reason = ""
    if match is not None and match["file"] is None:
        check_package(name)
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id

        try:
            validate_repo_id(match["repository"])
            return match["repository"], match["revision"]
        except HFValidationError as error:
            reason = f" ({error})"
    raise ValueError(
        f"a repository on the Hub must be `ORG/NAME[@BRANCH]`. Received: {str(name)!r}{reason}"
    )


def is_of_repository(path, address):
    """Return whether a file is in the Hub's cache of the repository of an address."""
    repository = ADDRESS.fullmatch(address)["repository"]
    return f"models--{repository.replace('/', '--')}" in path.parts


class _Repository:
    """A repository of models at a revision; `address` is for error messages."""

    def __init__(self, address, name, revision):
        self.address = address
        self.name = name
        self.revision = revision

    def weights(self):
        """Return the path of the weights in the top folder."""
        found = next(filter(None, map(self._download, WEIGHTS)), None)
        if found is not None:
            return self._with_companions(found, "")
        if any(self._download(name, dry_run=True) for name in PICKLED):
            raise self._refused(
                "has only pickled weights, which are never read: look for a pull request with "
                f"model.safetensors ({HUB}{self.name}@refs/pr/N), or save them as .safetensors by "
                "`save_pretrained` of transformers or https://hf.co/spaces/safetensors/convert"
            )
        raise self._refused(f"has none of the files {', '.join(WEIGHTS)}")

    def file(self, name):
        """Return the path of a file."""
        found = self._download(name)
        if found is None:
            raise self._refused(f"has no file {name!r}")
        return self._with_companions(found, name.rpartition("/")[0])

    def _with_companions(self, path, folder):
        """Download the other files of the weights at a path: shards, and JSON files."""
        prefix = f"{folder}/" if folder else ""
        if path.name == SHARD_INDEX:
            shards = json.loads(path.read_text(encoding="utf-8")).get("weight_map", {})
            for shard in sorted(set(shards.values())):
                if self._download(f"{prefix}{shard}") is None:
                    raise self._refused(f"has no file {shard!r}, which its index lists")
        if has_configuration(path) or path.name == SHARD_INDEX:
            for name in (*CONFIGURATION, PROCESSOR):
                self._download(f"{prefix}{name}")
        return path

    def _download(self, name, dry_run=False):
        """Return the path of a file in the cache; `None` if the repository does not have it."""
        from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        place = {"repo_id": self.name, "filename": name, "revision": self.revision}
        try:
            found = hf_hub_download(**place, dry_run=dry_run)
        except LocalEntryNotFoundError as error:
            if try_to_load_from_cache(**place) is _CACHED_NO_EXIST:
                return None
            raise self._refused(f"cannot be reached, and its {name} is not in the cache") from error
        except EntryNotFoundError:
            return None
        except GatedRepoError as error:
            raise self._refused(
                f"is gated: accept its terms at https://hf.co/{self.name}, then call "
                "`hf auth login` or set HF_TOKEN"
            ) from error
        except RepositoryNotFoundError as error:
            raise self._refused(
                "does not exist, or is private: call `hf auth login` or set HF_TOKEN for access"
            ) from error
        except RevisionNotFoundError as error:
            raise self._refused(f"has no revision {self.revision!r}") from error
        # The HTTP library of huggingface_hub has errors of its own.
        except Exception as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise self._refused(f"does not give its {name} ({reason})") from error
        if dry_run:
            return found
        path = pathlib.Path(found)
        # The files that follow are those of the same commit, whatever is pushed in between.
        depth = len(pathlib.PurePosixPath(name).parts)
        self.revision = path.parents[depth - 1].name
        return path

    def _refused(self, reason):
        return ValueError(f"the repository on the Hub {reason}. Received: {self.address!r}")
