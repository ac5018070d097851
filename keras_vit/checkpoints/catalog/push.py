"""Upload a directory of weights, with its model card, to a repository of the Hugging Face Hub."""

import contextlib
import hashlib
import os
import pathlib
import re
from typing import Any

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog.card import model_card
from keras_vit.checkpoints.catalog.hub import parse_repository
from keras_vit.checkpoints.configuration import MODEL, PREPROCESSOR, PROCESSOR
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.core.files import replacing
from keras_vit.version import __version__

CARD = "README.md"
# The last line of a card that this package wrote, with a digest of the lines before it.
SIGNATURE = "\n<!-- Written by keras_vit, {digest}. A card that was edited is not replaced. -->\n"
SIGNED = re.compile(r"(?P<text>.*)" + SIGNATURE.format(digest="([0-9a-f]{16})"), re.DOTALL)
FOREIGN = "keras_vit did not write it, or it was edited since"


def push_to_hub(
    directory: str | os.PathLike, name: str, card: Any = None, private: bool = False
) -> str:
    """Upload a directory of weights to a repository of the Hugging Face Hub, in one commit.

    The commit has the weights and the JSON files that `save_checkpoint` writes, and a README.md
    with the model card, which is written to the directory too. A README.md of the repository that
    this package did not write, or that was edited, is kept, and a line is logged. The repository
    and the branch are made if necessary. Token, endpoint and progress bars are those of
    `huggingface_hub`.

    Args:
        directory: directory of timm or transformers that `save_checkpoint` wrote.
        name: `ORG/NAME` or `ORG/NAME@BRANCH`, also after `hf://`.
        card: a `huggingface_hub.ModelCard`; by default `model_card(directory, name)`.
        private: whether only its owners can see the repository, if it is made.

    Returns:
        The address of the commit, a string.

    Raises:
        ValueError: if the directory or the name is another one, the Hub cannot be reached or does
            not accept the files, or `private` is true and the repository is public.

    Example:
    >>> keras_vit.checkpoints.push_to_hub(tmp_path, "flowers")
    Traceback (most recent call last):
    ValueError: a repository on the Hub must be `ORG/NAME[@BRANCH]`. Received: 'flowers'
    """
    repository, branch = check_push(name)
    directory = pathlib.Path(directory).expanduser()
    files = _written_files(directory)
    text = _signed(str(model_card(directory, name) if card is None else card))
    _write_card(directory / CARD, text)
    with _errors_in_one_line(name, repository, directory):
        from huggingface_hub import HfApi, get_token

        api = HfApi(token=get_token(), library_name="keras_vit", library_version=__version__)
        _make_repository(api, repository, branch, private)
        present = _check_repository(api, repository, branch, files)
        if CARD in present and not _is_own_card(api, repository, branch):
            logger.warning("%s keeps its %s: %s", repository, CARD, FOREIGN)
            return _commit(api, repository, branch, files)
        return _commit(api, repository, branch, {**files, CARD: text.encode()})


def check_push(name):
    """Check what can be checked of an upload beforehand; return the repository and the branch."""
    repository, branch = parse_repository(name)
    if branch is not None and re.fullmatch("[0-9a-f]{40}", branch):
        raise ValueError(f"a push must be to a branch, not to a commit. Received: {str(name)!r}")
    from huggingface_hub import get_token

    if get_token() is None:
        raise ValueError(
            "a push to the Hub needs a token with write access: call `hf auth login` or set "
            f"HF_TOKEN. Received: {str(name)!r}, and no token"
        )
    return repository, branch


def _written_files(directory):
    """Return the paths of the weights and the JSON files of a directory, by name."""
    if not directory.is_dir():
        raise ValueError(f"`directory` must be a directory. Received: {str(directory)!r}")
    with open_checkpoint(directory) as checkpoint:
        row = checkpoint.format
    files = {name: directory / name for name in (row.name_in_directory, *row.config_files)}
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        raise ValueError(
            "`directory` must be one that `save_checkpoint` wrote for timm or transformers. "
            f"Received: {str(directory)!r}, without {', '.join(missing)}"
        )
    return files


def _write_card(path, text):
    """Write a model card, unless there is another one that this package did not write."""
    try:
        if path.exists() and not _is_signed(path.read_text(encoding="utf-8", errors="replace")):
            logger.warning("%s is kept: %s", path, FOREIGN)
            return
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ValueError(
            f"`directory` must be where files can be written. Received: {str(path)!r} ({error})"
        ) from error


def _make_repository(api, repository, branch, private):
    """Make a repository and a branch, unless they exist."""
    api.create_repo(repository, private=private or None, exist_ok=True)
    if private and not api.model_info(repository).private:
        raise _UnfitError("is public already, so that `private` has no effect")
    if branch is not None:
        api.create_branch(repository, branch=branch, exist_ok=True)


def _check_repository(api, repository, branch, files):
    """Return the names of the files in a repository; raise an error if one hides a new file."""
    info = api.model_info(repository, revision=branch)
    present = {file.rfilename for file in info.siblings or ()}
    if MODEL in present and MODEL not in files:
        raise _UnfitError(f"has a {MODEL}, which is read instead of {next(iter(files))}")
    if PROCESSOR in present and PREPROCESSOR in files:
        raise _UnfitError(f"has a {PROCESSOR}, which is read instead of {PREPROCESSOR}")
    return present


def _commit(api, repository, branch, files):
    """Upload files in one commit; return its address.

    `upload_folder` may make several commits.
    """
    from huggingface_hub import CommitOperationAdd

    return api.create_commit(
        repository,
        [CommitOperationAdd(name, contents) for name, contents in files.items()],
        commit_message="Upload weights with keras_vit",
        revision=branch,
    ).commit_url


def _signed(text):
    text = text.replace("\r\n", "\n").rstrip("\n") + "\n"
    return text + SIGNATURE.format(digest=_digest(text))


def _is_signed(text):
    match = SIGNED.fullmatch(text.replace("\r\n", "\n"))
    return match is not None and match[2] == _digest(match["text"])


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_own_card(api, repository, branch):
    path = pathlib.Path(api.hf_hub_download(repository, CARD, revision=branch))
    return _is_signed(path.read_text(encoding="utf-8", errors="replace"))


class _UnfitError(Exception):
    """The repository is not one for these files."""


@contextlib.contextmanager
def _errors_in_one_line(name, repository, directory):
    """Raise `ValueError` for the errors of huggingface_hub and its HTTP library."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"the repository on the Hub {_reason(error, repository)}. "
            f"Received: {str(name)!r}; the files stay in {str(directory)!r}"
        ) from error


def _reason(error, repository):
    """Return what is wrong with a repository."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    # What is raised for any error of a large file.
    if isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    text = " ".join(str(error).split()) or type(error).__name__
    # The class of all errors of the HTTP library.
    network_error = HfHubHTTPError.__bases__[0]
    if isinstance(error, _UnfitError):
        return text
    if isinstance(error, GatedRepoError):
        return f"is gated: accept its terms at https://hf.co/{repository}"
    if status == 401:
        return "does not accept the token: call `hf auth login` or set HF_TOKEN"
    if status == 403:
        organization, answer = repository.partition("/")[0], str(error).strip().partition("\n")[0]
        return f"cannot be written: the token needs write access to {organization} ({answer})"
    if status is None and isinstance(
        error, (network_error, ConnectionError, LocalEntryNotFoundError)
    ):
        return f"cannot be reached ({text})"
    return f"does not accept the files ({text})"
