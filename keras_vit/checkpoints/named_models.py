"""Load runs and checkpoints by name, check names of models, and make digests of model files."""

import hashlib

import keras

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.catalog.download import files_of, find_file
from keras_vit.checkpoints.load import from_checkpoint
from keras_vit.checkpoints.run_files import find_model
from keras_vit.core.files import absolute_path, exists
from keras_vit.models.keras_files import load_model
from keras_vit.models.surgery import resize
from keras_vit.models.variants import is_variant


def load_trained(source, image_size=None):
    """Load a model from a run (its best model), a `.keras` file or a checkpoint.

    The model is resized to `image_size`, unless this is `None`. Some files do not record the image
    size of their model, and can be loaded only with `image_size`.
    """
    path = find_model(source)
    if path.suffix != ".keras":
        return from_checkpoint(source, image_size=image_size)
    model = load_refusing_scaling(path)
    return model if image_size is None else resize(model, image_size)


def load_refusing_scaling(path):
    """Load a `.keras` file; raise an error if the model scales the pixels itself."""
    model = load_model(path)
    scaling = keras.layers.Rescaling, keras.layers.Normalization
    if any(isinstance(layer, scaling) for layer in model.layers):
        raise ValueError(
            "`model` must take images in [-1, 1], because all commands scale pixels to this range. "
            f"Received: model={str(path)!r}, which scales pixels itself"
        )
    return model


def check_model_path(model):
    """Raise an error if a model is neither a variant nor weights; download published weights."""
    if not is_variant(model):
        find_file(model, argument="model")


def absolute_model_name(model):
    """Return the name of a model, or its absolute path, to be used in any working directory.

    Example:
    >>> from keras_vit.checkpoints.named_models import absolute_model_name
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
    return {"model_digest": digest_of_files(files_of(path))}


def digest_of_files(paths):
    """Return one digest of all paths that are files; raise an error if none is a file."""
    files, digest = sorted(path for path in set(paths) if path.is_file()), hashlib.sha256()
    if not files:
        raise ValueError(f"A model must have files. Received: {', '.join(map(str, paths))}")
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]
