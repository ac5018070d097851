"""The model card of a directory of weights: the README.md of its repository on the Hub."""

import contextlib
import os
import pathlib
import re
import urllib.parse
from typing import Any

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.hub import ADDRESS, parse_repository
from keras_vit.checkpoints.configuration import TF_MODEL, read_config
from keras_vit.checkpoints.configuration.class_names import read_class_names
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.positions import resizing_for
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.summary import inspect_checkpoint
from keras_vit.core.text import printable
from keras_vit.version import __version__

MAX_NAMED = 10
LICENSE = ("license", "license_name", "license_link")

KERAS_CODE = """
import keras_vit

model = keras_vit.from_checkpoint("hf://{name}")
# Pixels from 0 to 255, resized as above.
outputs = model(keras_vit.preprocess(images))
"""
TIMM_CODE = """
import timm

model = timm.create_model("hf-hub:{name}", pretrained=True).eval()
settings = timm.data.resolve_model_data_config(model)
transform = timm.data.create_transform(**settings, is_training=False)
outputs = model(transform(image).unsqueeze(0))
"""
TRANSFORMERS_CODE = """
from transformers import AutoImageProcessor, {model_class}

processor = AutoImageProcessor.from_pretrained({place})
model = {model_class}.from_pretrained({place})
outputs = model(**processor(image, return_tensors="pt"))
"""
# For transformers before version 5.
TENSORFLOW_CODE = TRANSFORMERS_CODE.replace('"pt"', '"tf"')


def model_card(
    directory: str | os.PathLike,
    name: str,
    *,
    source: str | None = None,
    finetuned: bool = False,
    accuracy: str | None = None,
    license: str | None = None,
) -> Any:
    """Describe a directory of weights for people who find it on the Hugging Face Hub.

    The facts are those of the files: architecture, classes, image size, normalization, resizing.

    Args:
        directory: directory of timm or transformers that `save_checkpoint` wrote.
        name: name of the repository, `ORG/NAME` or `ORG/NAME@BRANCH`, for the code that loads it.
        source: name or address that the weights came from, as in `from_checkpoint`. Paths are not
            mentioned.
        finetuned: whether the weights were trained further since they came from `source`.
        accuracy: a known accuracy in words, such as `"93.2 % on oxford_iiit_pet"`.
        license: license of the weights, as the Hub spells it. If it is `None` and they were only
            converted from a repository of the Hub, it is that of the repository.

    Returns:
        A `huggingface_hub.ModelCard`.

    Raises:
        ValueError: if `directory` cannot be read, `name` is not that of a repository, or
            huggingface_hub is not installed.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> keras_vit.save_checkpoint(model, tmp_path / "pets", "timm", class_names=["cat", "dog"])
    >>> card = keras_vit.checkpoints.model_card(tmp_path / "pets", "org/pets")
    >>> card.data.library_name, card.data.pipeline_tag
    ('timm', 'image-classification')
    """
    repository, branch = parse_repository(name)
    from huggingface_hub import ModelCard, ModelCardData

    directory = pathlib.Path(directory).expanduser()
    summary = inspect_checkpoint(directory)
    row = FORMATS[summary.format]
    library = "timm" if "timm" in (row.name, row.family) else "transformers"
    task = "image-classification" if summary.options.num_classes else "image-feature-extraction"
    base = ADDRESS.fullmatch(str(source))
    licenses = {"license": license}
    if base and license is None and not finetuned:
        licenses = _license_of(base["repository"], base["revision"])
    data = ModelCardData(
        base_model=base["repository"] if base else None,
        library_name=library,
        pipeline_tag=task,
        tags=["keras_vit", "vision", "vision-transformer"],
        **licenses,
    )
    facts = {
        "Weights": _origin(source, finetuned),
        "Classes": _classes(directory, summary),
        "Accuracy": accuracy,
        "Parameters": f"{summary.parameters:,}",
        **_images(directory, summary),
    }
    lines = "\n".join(f"- {fact}: {text}" for fact, text in facts.items() if text)
    what = f"{summary.variant or 'Vision Transformer'} for {task.replace('-', ' ')}"
    title = repository.partition("/")[2]
    return ModelCard(
        f"---\n{data.to_yaml()}\n---\n\n# {title}\n\n"
        f"{what}, written by keras_vit {__version__}.\n\n{lines}\n\n"
        f"## Keras\n{_block(KERAS_CODE.format(name=_with(repository, branch)))}\n"
        f"{_loading(directory, repository, branch, summary, library)}"
    )


def _license_of(repository, revision):
    """Return the license in the model card of a repository, if it has one, for `ModelCardData`."""
    from huggingface_hub import hf_hub_download, metadata_load

    # Weights are uploaded without a license if there is no card, or it cannot be read.
    with contextlib.suppress(Exception):
        metadata = metadata_load(hf_hub_download(repository, "README.md", revision=revision))
        return {name: metadata.get(name) for name in LICENSE}
    return {}


def _origin(source, finetuned):
    """Return where the weights come from, in Markdown; `None` for a path."""
    text, how = str(source), "fine-tuned" if finetuned else "converted"
    if (base := ADDRESS.fullmatch(text)) is not None:
        repository = base["repository"]
        place = f"[{repository}](https://huggingface.co/{repository})"
        return f"{how} from {place}" + (f" at {base['revision']}" if base["revision"] else "")
    row = next((row for row in CHECKPOINTS if text in (row.name, row.url)), None)
    if row is not None:
        return f"{how} from `{row.name}`, {row.url}"
    with contextlib.suppress(ValueError):
        return f"{how} from {parse_augreg(text).url}"
    # Queries and users of addresses may be secret.
    parts = urllib.parse.urlsplit(text)
    if parts.scheme in ("https", "http", "gs"):
        return f"{how} from {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return None


def _classes(directory, summary):
    """Return the number of classes and the first names."""
    number = summary.options.num_classes
    if not number:
        return "none; the outputs are the pooled representation"
    names = read_class_names(directory, number) or []
    listed = ", ".join(map(_escaped, names[:MAX_NAMED])) + (", ..." * (len(names) > MAX_NAMED))
    untrained = "; the head is zero and has to be trained" if summary.zero_head else ""
    return f"{number}" + (f" ({listed})" if names else "") + untrained


def _escaped(text):
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", printable(text))


def _images(directory, summary):
    """Return what the files need of images: size, resizing and normalization."""
    with open_checkpoint(directory) as checkpoint:
        mean, deviation = checkpoint.normalization
        resizing = resizing_for(checkpoint, summary.options, summary.options.image_size)
    height, width = summary.options.image_size
    return {
        "Images": f"{height} x {width} pixels (height x width)",
        "Resizing": resizing.in_words(),
        "Normalization": (
            f"pixels in [0, 1] with mean {_numbers(mean)} and standard deviation "
            f"{_numbers(deviation)}. In keras_vit, images are in [-1, 1] instead, and "
            "`from_checkpoint` adapts the weights to that"
        ),
    }


def _numbers(values):
    values = values[:1] if len(set(values)) == 1 else values
    return ", ".join(f"{value:.6g}" for value in values)


def _loading(directory, repository, branch, summary, library):
    """Return the section with the code that loads the weights in their own library."""
    has_head = bool(summary.options.num_classes)
    place = f'"{repository}"' + (f', revision="{branch}"' if branch else "")
    if library == "timm":
        return f"## timm\n{_block(TIMM_CODE.format(name=_with(repository, branch)))}"
    if FORMATS[summary.format].name_in_directory == TF_MODEL:
        model_class = "TFViTForImageClassification" if has_head else "TFViTModel"
        code = TENSORFLOW_CODE.format(model_class=model_class, place=place)
        return f"## transformers before version 5, in TensorFlow\n{_block(code)}"
    # `AutoModel` leaves out the projection of CLIP.
    (own_class,) = read_config(directory)["architectures"]
    model_class = "AutoModelForImageClassification" if has_head else own_class
    code = TRANSFORMERS_CODE.format(model_class=model_class, place=place)
    return f"## transformers\n{_block(code)}"


def _with(repository, branch):
    return f"{repository}@{branch}" if branch else repository


def _block(code):
    return f"\n```python{code}```\n"
