"""Upload a directory of weights, with its model card, to a repository of the Hugging Face Hub."""

import os
import pathlib
from typing import Any

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog.card import model_card
from keras_vit.checkpoints.catalog.hub import naming_hub, parse_repository
from keras_vit.checkpoints.configuration import MODEL, PREPROCESSOR, PROCESSOR, TF_MODEL
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.version import __version__

CARD = "README.md"
# Files that are read instead of others.
READ_INSTEAD = {TF_MODEL: MODEL, PREPROCESSOR: PROCESSOR}


def push_to_hub(
    directory: str | os.PathLike, name: str, card: Any = None, private: bool = False
) -> str:
    """Upload a directory of weights to a repository of the Hugging Face Hub, in one commit.

    The commit has the weights and the JSON files that `save_checkpoint` writes, and a README.md
    with the model card, unless the repository has one, which is kept. The repository and the branch
    are made if necessary. Token, endpoint and progress bars are those of `huggingface_hub`.

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
    from huggingface_hub import CommitOperationAdd, HfApi

    repository, branch = parse_repository(name)
    directory = pathlib.Path(directory).expanduser()
    with open_checkpoint(directory) as checkpoint:
        row = checkpoint.format
    card = model_card(directory, name) if card is None else card
    files = (row.name_in_directory, *row.config_files)
    operations = [CommitOperationAdd(file, directory / file) for file in files]
    api = HfApi(library_name="keras_vit", library_version=__version__)
    with naming_hub(name):
        api.create_repo(repository, private=private or None, exist_ok=True)
        if branch is not None:
            api.create_branch(repository, branch=branch, exist_ok=True)
        info = api.model_info(repository, revision=branch)
        present = {file.rfilename for file in info.siblings or ()}
        if private and not info.private:
            raise ValueError("it is public, so that `private` has no effect")
        for file in files:
            if READ_INSTEAD.get(file) in present:
                raise ValueError(f"it has a {READ_INSTEAD[file]}, which is read instead of {file}")
        if CARD in present:
            logger.warning("%s keeps its %s", repository, CARD)
        else:
            operations.append(CommitOperationAdd(CARD, str(card).encode()))
        # `upload_folder` may make several commits.
        return api.create_commit(
            repository,
            operations,
            commit_message="Upload weights with keras_vit",
            revision=branch,
        ).commit_url
