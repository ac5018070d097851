"""Check, name and digest the files that models are read from."""

import hashlib
import pathlib

from keras_vit.checkpoints.archives import FILE_SUFFIXES
from keras_vit.checkpoints.catalog import CHECKPOINTS, nearest_file
from keras_vit.checkpoints.catalog.download import files_of, find_file
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.trained.loading import saved_by_run
from keras_vit.checkpoints.trained.runs import find_model
from keras_vit.core.files import absolute_path, exists
from keras_vit.models.variants import (
    find_variant,
    is_variant,
    is_variant_or_mistyped,
    nearest_variants,
)


def check_model_path(model):
    """Check that a model is a variant, or a file that can be opened; no weights are read.

    A checkpoint is downloaded.
    """
    if is_variant(model):
        find_variant(model)
        return
    if is_variant_or_mistyped(model):
        sibling = nearest_file(model)
        raise ValueError(
            f"`model` must be the name of a variant, such as {nearest_variants(model)}, or a path "
            f"that exists{f', such as {sibling}' if sibling else ''}. Received: model={model!r}"
        )
    file = find_file(model, argument="model")
    if file.suffix == ".keras":
        saved_by_run(file)
        return
    with open_checkpoint(file):
        pass


def absolute_model_name(model):
    """Return the name of a model with an absolute path, for use in any working directory.

    Example:
    >>> from keras_vit.checkpoints.trained.model_paths import absolute_model_name
    >>> absolute_model_name("ViT_Ti16"), absolute_model_name("tests/data/digits.py")
    ('ViT_Ti16', '/...tests/data/digits.py')
    """
    text = str(model)
    if is_variant(text) or "://" in text or any(row.name == text for row in CHECKPOINTS):
        return text
    return absolute_path(text)


def model_digest(model):
    """Return a dictionary with the digest of a model's files; empty for a name or an address."""
    path = find_model(model)
    if is_variant(model) or not exists(path):
        return {}
    others = {*files_of(path)} - {path}
    if path.is_dir():
        # Not those of an editor, a file browser or a run.
        others = {file for file in path.iterdir() if file.suffix in FILE_SUFFIXES}
    found = hashlib.sha256()
    for file in filter(pathlib.Path.is_file, [path, *sorted(others)]):
        found.update(file.name.encode() if file != path else b"")
        with file.open("rb") as opened:
            found.update(hashlib.file_digest(opened, "sha256").digest())
    return {"model_digest": found.hexdigest()[:16]}
