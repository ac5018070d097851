"""Upload weights with a model card to the Hugging Face Hub."""

import contextlib
import dataclasses
import os
import pathlib
import urllib.parse
from typing import Any

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.hub import ADDRESS, as_hub_error, parse_repository
from keras_vit.checkpoints.configuration import MODEL, PREPROCESSOR, PROCESSOR, TF_MODEL
from keras_vit.checkpoints.position_rows import image_spec_for
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.summary import inspect_checkpoint
from keras_vit.version import __version__

# Maximum number of class names in a model card.
MAX_NAMED = 10

TEXT = """---
{metadata}
---

# {title}

{description}, written by keras_vit {version}.

{properties}

## Keras

```python
import keras_vit

model = keras_vit.from_checkpoint("hf://{address}")
# Pixels from 0 to 255, resized as above.
outputs = model(keras_vit.preprocess(images))
```
"""


def model_card(
    directory: str | os.PathLike,
    name: str,
    *,
    source: str | None = None,
    finetuned: bool = False,
    accuracy: str | None = None,
    license: str | None = None,
) -> Any:
    """Return a model card for a directory of weights, to publish on the Hugging Face Hub.

    The card describes architecture, classes, image size, normalization and resizing.

    Args:
        directory: directory of timm or transformers that `save_checkpoint` wrote.
        name: name of the repository, `ORG/NAME` or `ORG/NAME@BRANCH`. The card contains code that
            loads this repository.
        source: name or address of the original weights, as in `from_checkpoint`. The card does not
            mention a `source` that is a path.
        finetuned: whether the weights of `source` were trained further.
        accuracy: a known accuracy in words, such as `"93.2 % on oxford_iiit_pet"`.
        license: license of the weights, in the Hub's spelling. `None` copies the license of
            `source`, if this is a repository of the Hub and the weights were not trained further.

    Returns:
        A `huggingface_hub.ModelCard`.

    Raises:
        ValueError: if `directory` cannot be read, or `name` is not the name of a repository.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> keras_vit.save_checkpoint(model, tmp_path / "pets", "timm", class_names=["cat", "dog"])
    >>> card = keras_vit.checkpoints.model_card(tmp_path / "pets", "org/pets")
    >>> card.data.library_name, card.data.pipeline_tag
    ('timm', 'image-classification')
    """
    from huggingface_hub import ModelCard, ModelCardData

    repository, branch = parse_repository(name)
    directory = pathlib.Path(directory).expanduser()
    summary = inspect_checkpoint(directory)
    with open_checkpoint(directory) as checkpoint:
        layout = checkpoint.format
        image_spec = image_spec_for(checkpoint, summary.options, summary.options.image_size)
    height, width = summary.options.image_size
    task = "image-classification" if summary.options.num_classes else "image-feature-extraction"
    base = ADDRESS.fullmatch(str(source))
    data = ModelCardData(
        base_model=base["repository"] if base else None,
        library_name="timm" if "timm" in (layout.name, layout.family) else "transformers",
        pipeline_tag=task,
        tags=["keras_vit", "vision", "vision-transformer"],
        license=license,
    )
    if base and license is None and not finetuned:
        _copy_license(base["repository"], data)
    properties = {
        "Weights": _origin(str(source), "fine-tuned" if finetuned else "converted"),
        "Classes": _classes(summary),
        "Accuracy": accuracy,
        "Parameters": f"{summary.parameters:,}",
        "Images": f"{height} x {width} pixels (height x width)",
        "Preprocessing": ", ".join(f"{k}={v}" for k, v in dataclasses.asdict(image_spec).items()),
    }
    text = TEXT.format(
        metadata=data.to_yaml(),
        title=repository.partition("/")[2],
        description=f"{summary.variant or 'Vision Transformer'} for {task.replace('-', ' ')}",
        version=__version__,
        properties="\n".join(f"- {name}: {text}" for name, text in properties.items() if text),
        address=f"{repository}@{branch}" if branch else repository,
    )
    return ModelCard(text)


def _copy_license(repository, data):
    """Copy the license from the model card of a repository, if the card has one, to `data`."""
    from huggingface_hub import ModelCard

    # If the card cannot be read, the new card has no license.
    with contextlib.suppress(Exception):
        original = ModelCard.load(repository).data
        for name in ("license", "license_name", "license_link"):
            setattr(data, name, original.get(name))


def _origin(source, change):
    """Describe the origin of weights in Markdown; return `None` for a path."""
    if (base := ADDRESS.fullmatch(source)) is not None:
        repository = base["repository"]
        link = f"[{repository}](https://huggingface.co/{repository})"
        return f"{change} from {link}" + (f" at {base['revision']}" if base["revision"] else "")
    for row in CHECKPOINTS:
        if source in (row.name, row.url):
            return f"{change} from `{row.name}`, {row.url}"
    with contextlib.suppress(ValueError):
        return f"{change} from {parse_augreg(source).url}"
    # Leave out the query, and the user and password, which may be secret.
    parts = urllib.parse.urlsplit(source)
    if parts.scheme in ("https", "http", "gs"):
        return f"{change} from {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return None


def _classes(summary):
    """Describe the number of classes and their first names."""
    number, names = summary.options.num_classes, summary.class_names or ()
    if not number:
        return "none; the outputs are the pooled representation"
    # In backquotes, because names may contain special characters of Markdown.
    listed = ", ".join(f"`{name}`" for name in names[:MAX_NAMED])
    more = ", ..." if len(names) > MAX_NAMED else ""
    untrained = "; the head is zero and has to be trained" if summary.head_state == "zero" else ""
    return f"{number}" + (f" ({listed}{more})" if names else "") + untrained


CARD = "README.md"
# For each file that is uploaded, the existing file that would be read instead.
READ_INSTEAD = {TF_MODEL: MODEL, PREPROCESSOR: PROCESSOR}


def push_to_hub(
    directory: str | os.PathLike, name: str, card: Any = None, private: bool = False
) -> str:
    """Upload a directory of weights to a repository of the Hugging Face Hub, in one commit.

    The commit contains the weights and the JSON files that `save_checkpoint` writes. It also
    contains a README.md with the model card, unless the repository already has a README.md. The
    repository and the branch are created if necessary. `huggingface_hub` manages the token, the
    endpoint and the progress bars.

    Args:
        directory: directory of timm or transformers that `save_checkpoint` wrote.
        name: `ORG/NAME` or `ORG/NAME@BRANCH`, optionally after `hf://`.
        card: a `huggingface_hub.ModelCard`; by default `model_card(directory, name)`.
        private: whether a new repository is visible only to its owners.

    Returns:
        The address of the commit, a string.

    Raises:
        ValueError: if `directory` or `name` is invalid, the Hub cannot be reached or refuses the
            files, or `private` is true and the repository is public.

    Example:
    >>> keras_vit.checkpoints.push_to_hub(tmp_path, "flowers")
    Traceback (most recent call last):
    ValueError: a repository on the Hub must be `ORG/NAME[@BRANCH]`. Received: 'flowers'
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    repository, branch = parse_repository(name)
    directory = pathlib.Path(directory).expanduser()
    with open_checkpoint(directory) as checkpoint:
        layout = checkpoint.format
    card = model_card(directory, name) if card is None else card
    files = (layout.name_in_directory, *layout.config_files)
    operations = [CommitOperationAdd(file, directory / file) for file in files]
    api = HfApi(library_name="keras_vit", library_version=__version__)
    with as_hub_error(name):
        api.create_repo(repository, private=private or None, exist_ok=True)
        if branch is not None:
            api.create_branch(repository, branch=branch, exist_ok=True)
        info = api.model_info(repository, revision=branch)
        existing = {file.rfilename for file in info.siblings or ()}
        if private and not info.private:
            raise ValueError("it is public, so that `private` has no effect")
        for file in files:
            if READ_INSTEAD.get(file) in existing:
                raise ValueError(f"it has a {READ_INSTEAD[file]}, which is read instead of {file}")
        if CARD in existing:
            logger.warning("%s already has a %s, which is kept", repository, CARD)
        else:
            operations.append(CommitOperationAdd(CARD, str(card).encode()))
        # `upload_folder` may make several commits, so it is not used.
        return api.create_commit(
            repository,
            operations,
            commit_message="Upload weights with keras_vit",
            revision=branch,
        ).commit_url
