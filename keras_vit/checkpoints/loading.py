"""Models from checkpoint files, and checkpoint files into models."""

import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.formats import CONFIGURED, KERAS, POSITIONS
from keras_vit.checkpoints.grids import records_grid, warn_of_assumed_grid
from keras_vit.checkpoints.known_files import described_options, published_row
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.core.arguments import as_pair, check_integer
from keras_vit.models import architecture_differences
from keras_vit.models.builders import maker, register_pretrained_builder
from keras_vit.models.describe import describe
from keras_vit.models.files import load_weights
from keras_vit.models.options import (
    DROPOUT_OPTIONS,
    defaults_of,
    is_resnet,
    make_model,
    match_variant,
)
from keras_vit.models.origin import set_origin
from keras_vit.models.surgery import keep_frozen, token_grid

# What a caller may choose: no file records it, or not every file.
UNRECORDED_OPTIONS = (
    *DROPOUT_OPTIONS,
    "classifier_activation",
    "activation",
    "epsilon",
    "name",
    "dtype",
    "remat",
)


def from_checkpoint(
    path, num_classes=None, image_size=None, num_heads=None, format=None, **options
):
    """Builds the model that a checkpoint file describes and loads it.

    Width, depth, heads, patch size, grid, classes, pooling and the hidden layer of the head are
    read off the arrays. What the arrays of weights trained in PyTorch do not record (heads,
    epsilon, GELU) is read off the `config.json` next to them; without it the heads are those of the
    published model of that size, or 64 channels each, and the rest is timm's or transformers'
    default. What is frozen in a `.keras` file stays frozen; other files record nothing of it.

    Args:
        path: of an `.npz` of vit_jax, big_vision or big_transfer (BiT), a `.safetensors` of timm or
            Hugging Face transformers, a directory with `model.safetensors` (or its shards) and
            `config.json`, or a `.keras` file; an `https://` or `gs://` address of one; or a name of
            `keras_vit.list_checkpoints()` or of an AugReg file.
        num_classes: `None` keeps the file's head. A number drops it and `pre_logits`, and starts
            from a head of that many classes at zero; 0 for no head.
        image_size: int or `(height, width)` to resize the position embeddings to; `None` keeps the
            file's. It has to be that of the file where this has no square grid of patches. A ResNet
            has none: 224, or what the catalogue says of a published file.
        num_heads: attention heads, for a file that does not tell.
        format: `"google"`, `"big_vision"`, `"big_transfer"`, `"timm"`, `"huggingface"` or
            `"keras"`; `None` to find out.
        **options: of `vision_transformer` that no file tells: `dropout`, `attention_dropout`,
            `stochastic_depth`, `classifier_activation`, `name`, `dtype`, `remat`; and `activation`
            and `epsilon`, which not every file tells. Of a ResNet `classifier_activation`, `name`
            and `dtype`.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if the file is not what it claims, cannot be reached, holds anything but the
            arrays of one Vision Transformer or ResNet, or an argument does not fit it.

    Example:
    >>> model = keras_vit.from_checkpoint("tests/data/reference/a_vit_token.ckpt.npz")
    >>> model.output.shape
    (None, 10)
    """
    file = find_file(path)
    with open_checkpoint(file, format) as checkpoint:
        described = described_options(file, checkpoint, num_heads, image_size)
        row = match_variant(described)
        if row is not None:
            described.setdefault("name", row.name)
        new_head = num_classes is not None
        model = _load_adapted(checkpoint, described, num_classes, image_size, new_head, options)
        warn_of_assumed(checkpoint, described, num_heads, options)
        return model


def load_checkpoint(model, path, format=None):
    """Loads a checkpoint file into a model, exactly: every array used and every variable filled.

    All arrays are read and checked before the first is assigned, so that an error leaves the model
    as it was. To adapt a file to other classes or another image size, see `from_checkpoint`.

    Args:
        model: a built model of this package.
        path: as in `from_checkpoint`, or a `.weights.h5` file.
        format: as in `from_checkpoint`.

    Raises:
        ValueError: if the file does not hold exactly the model's weights; the message lists unused,
            missing and misshapen arrays.

    Example:
    >>> path = "tests/data/reference/a_vit_token.ckpt.npz"
    >>> model = keras_vit.from_checkpoint(path)
    >>> keras_vit.load_checkpoint(model, path)
    """
    file = find_file(path)
    if file.name.endswith(".weights.h5"):
        _load_keras_weights(model, file)
        return
    with open_checkpoint(file, format) as checkpoint:
        values = checkpoint.read(model)
        _warn_of_other_functions(model, file, checkpoint)
        if checkpoint.shape_of(POSITIONS) is not None and not records_grid(checkpoint):
            warn_of_assumed_grid(file, token_grid(model))
        if checkpoint.is_mapped:
            for _ in values:
                # Each is read and checked, and none kept: reading it again costs little.
                pass
            values = checkpoint.read(model)
        else:
            values = list(values)
        for variable, value in values:
            assign(variable, value)
    _record_origin(model, file)


def build_pretrained(row, weights, num_classes, image_size, options):
    """The model of a table row with weights: what a builder does with `weights`.

    Args:
        row: of the table of variants.
        weights: as `path` in `from_checkpoint`, or a tag of the catalogue.
        num_classes: `None`, or a number of classes; the head is kept if it has as many.
        image_size: `None`, or an image size; position embeddings are resized if it is another.
        options: more options of `vision_transformer`, which win over the file's.

    Returns:
        A Functional `keras.Model`.
    """
    file = find_file(weights, row.name, argument="weights")
    if file.name.endswith(".weights.h5"):
        sizes = {"num_classes": num_classes, "image_size": image_size}
        sizes = {name: size for name, size in sizes.items() if size is not None}
        model = maker(row)(**row.architecture, **sizes, **{"name": row.name, **options})
        _load_keras_weights(model, file)
        return model
    with open_checkpoint(file) as checkpoint:
        num_heads = _heads_of(row, checkpoint)
        try:
            described = described_options(file, checkpoint, num_heads, image_size)
        except ValueError:
            # Of another architecture, the heads are not what is wrong.
            _check_architecture(row, described_options(file, checkpoint, None, image_size), file)
            raise
        _check_architecture(row, described, file)
        new_head = num_classes not in (None, described["num_classes"])
        described["name"] = row.name
        model = _load_adapted(checkpoint, described, num_classes, image_size, new_head, options)
        warn_of_assumed(checkpoint, described, num_heads, options)
        return model


def _load_keras_weights(model, file):
    load_weights(model, file)
    if any(variable.path == POSITIONS for variable in model.weights):
        warn_of_assumed_grid(file, token_grid(model))


def _load_adapted(checkpoint, described, num_classes, image_size, new_head, callers_options):
    options, stored_size = dict(described), described["image_size"]
    if new_head:
        num_classes = check_integer("num_classes", num_classes, minimum=0)
        options["num_classes"] = num_classes
        if not is_resnet(options):
            options["representation_size"] = None
        logger.info(
            "%s: its head is dropped for one of %d classes at zero", checkpoint.path, num_classes
        )
    if image_size is not None:
        options["image_size"] = as_pair(image_size, "image_size")
    _check_told(options, callers_options)
    model = make_model({**options, **callers_options})
    if options["image_size"] != stored_size and not is_resnet(options):
        sizes = ["x".join(map(str, size)) for size in (stored_size, options["image_size"])]
        logger.info(
            "%s: position embeddings are resized from %s to %s pixels", checkpoint.path, *sizes
        )
    for variable, value in checkpoint.read(model, new_head, stored_size):
        assign(variable, value)
    if checkpoint.format is KERAS:
        keep_frozen(checkpoint.archive.model, model, has_new_head=new_head and num_classes > 0)
        if "dtype" not in callers_options:
            _warn_of_policies(checkpoint, model)
    _record_origin(model, checkpoint.path)
    return model


def _warn_of_policies(checkpoint, model):
    """Log a warning if layers of a `.keras` file have another dtype policy than the model's."""
    policies = {layer.name: layer.dtype_policy.name for layer in model.layers}
    stored = {x.name: x.dtype_policy.name for x in checkpoint.archive.model.layers if x.weights}
    different = [name for name in stored if policies.get(name, stored[name]) != stored[name]]
    if different:
        logger.warning(
            "%s: its layers have several dtype policies, which only `keras.models.load_model` "
            "keeps: %s computes in %s here, not in %s",
            checkpoint.path,
            *(different[0], policies[different[0]], stored[different[0]]),
        )


def _record_origin(model, file):
    set_origin(model, None if published_row(file) else file)


def warn_of_assumed(checkpoint, described, num_heads=None, given=()):
    """Warn of what is assumed of a `.safetensors` file without a `config.json`.

    Args:
        checkpoint: the open `Checkpoint`.
        described: options that the file describes.
        num_heads: as in `from_checkpoint`.
        given: names of the options that the caller gives.
    """
    assumed = checkpoint.assumed(described, num_heads)
    assumed = [f"{name}={value}" for name, value in assumed.items() if name not in given]
    if assumed:
        logger.warning(
            "%s has no config.json, and its arrays do not record what is assumed here: %s",
            checkpoint.path,
            ", ".join(assumed),
        )


def _check_told(options, callers_options):
    """Raises if the caller gives an option another value than the file tells."""
    said = {**defaults_of(options), **options}
    for name, value in callers_options.items():
        if name not in said:
            family = "ResNet" if is_resnet(options) else "Vision Transformer"
            raise ValueError(
                f"`{name}` must not be given for a file of a {family}, which has none. "
                f"Received: {name}={value!r}"
            )
        told = said[name]
        if name not in UNRECORDED_OPTIONS and value != told:
            raise ValueError(
                f"`{name}` must be that of the file, {told!r}, or not be given. "
                f"Received: {name}={value!r}"
            )


def assign(variable, value):
    """Gives a variable a value that may be a view of a file or of another model's variable."""
    # A buffer of its own: JAX takes NumPy's for the variable's, and gives it up in training.
    variable.assign(np.array(value))


def _heads_of(row, checkpoint):
    is_told = checkpoint.format.name not in CONFIGURED
    return None if is_told else getattr(row, "num_heads", None)


def _check_architecture(row, described, file):
    different = architecture_differences(row, described)
    if different:
        pairs = ", ".join(f"{k}={v} instead of {wanted}" for k, (v, wanted) in different.items())
        raise ValueError(
            f"`weights` must be those of {row.name}. Received: weights={str(file)!r}, with {pairs}"
        )


def _warn_of_other_functions(model, file, checkpoint):
    """Says it if the file tells another function of the same arrays than the model's."""
    ours = describe(model)
    theirs = described_options(file, checkpoint, ours.get("num_heads"), ours["image_size"])
    names = ["classifier_activation"]
    if not is_resnet(ours):
        names += ["activation", "epsilon", "position_embedding"]
        # Without its config.json, the pooling of a file of timm is assumed.
        if checkpoint.has_configuration or checkpoint.format.name not in CONFIGURED:
            names.append("pooling")
    for name in names:
        if theirs.get(name, ours[name]) != ours[name]:
            logger.warning(
                "%s: the model has %s=%r, the file %r",
                checkpoint.path,
                name,
                ours[name],
                theirs[name],
            )


register_pretrained_builder(build_pretrained)
