"""Models from checkpoint files, and checkpoint files into models."""

import contextlib

import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.augreg import parse_augreg
from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.download import cache_path, find_file
from keras_vit.checkpoints.formats import KERAS, POSITIONS
from keras_vit.checkpoints.grids import UNTOLD_SIZE, records_grid, warn_of_assumed_grid
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.core.arguments import as_pair, check_integer
from keras_vit.models import architecture_differences
from keras_vit.models.builders import maker, register_pretrained_builder
from keras_vit.models.describe import describe
from keras_vit.models.files import load_weights
from keras_vit.models.options import defaults_of, is_resnet, make_model, match_variant
from keras_vit.models.origin import set_origin
from keras_vit.models.surgery import keep_frozen, token_grid

# Formats whose files have a `config.json` next to them.
CONFIGURED = ("timm", "huggingface")
# What a caller may choose: no file tells it, or not every file.
UNTOLD_OPTIONS = (
    "dropout",
    "attention_dropout",
    "stochastic_depth",
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
    read off the arrays. What the arrays of files born in torch do not tell (heads, epsilon, GELU)
    is read off the `config.json` beside them; without it the heads are those of the published model
    of that size, or 64 channels each, and the rest is timm's or transformers' default. What is
    frozen in a `.keras` file stays frozen; other files record nothing of it.

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
        described = described_options(file, checkpoint, num_heads, image_size)
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
    _record_origin(model, checkpoint.path)
    return model


def _record_origin(model, file):
    set_origin(model, None if _published(file) else file)


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
            "%s has no config.json: %s are assumed, which its arrays do not record",
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
        if name not in UNTOLD_OPTIONS and value != told:
            raise ValueError(
                f"`{name}` must be that of the file, {told!r}, or not be given. "
                f"Received: {name}={value!r}"
            )


def assign(variable, value):
    """Gives a variable a value that may be a view of a file or of another model's variable."""
    # A buffer of its own: JAX takes NumPy's for the variable's, and gives it up in training.
    variable.assign(np.array(value))


def described_options(file, checkpoint, num_heads=None, image_size=None):
    """The options that the file describes, and those that the catalogue knows of it by its name.

    No `.npz` tells the GELU's form; the weights of DeiT III were born in torch. None of a ResNet
    tells the size of its images.
    """
    options = checkpoint.options(num_heads, image_size)
    variant = getattr(match_variant(options), "name", None)
    rows = [
        row for row in CHECKPOINTS if row.url.endswith(f"/{file.name}") and row.variant == variant
    ]
    _check_published(file, checkpoint, options, variant)
    if image_size is None and not checkpoint.tells_image_size:
        known = rows[0].image_size if len(rows) == 1 else UNTOLD_SIZE
        options["image_size"] = (known, known)
        how = "by its name it is" if len(rows) == 1 else "it is taken for"
        logger.warning("%s does not tell its image size: %s %d pixels", file, how, known)
    if checkpoint.format.name in ("google", "big_vision") and not is_resnet(options):
        if not rows and not checkpoint.tells_image_size:
            logger.warning(
                "%s has no position embedding: the fixed sines and cosines are assumed", file
            )
        known = {row.activation for row in rows}
        if len(known) == 1:
            (options["activation"],) = known
        if known == {"gelu"}:
            logger.info("%s: by its name, a published file with the erf GELU", file)
    return options


def _check_published(file, checkpoint, options, variant):
    """Raise an error if a file in the place of a published one holds another model."""
    row = _published(file)
    if row is None:
        return
    said = {"variant": row.variant, "num_classes": row.num_classes}
    found = {"variant": variant, "num_classes": options["num_classes"]}
    if checkpoint.tells_image_size:
        size = getattr(row, "image_size", None) or row.resolution
        said["image_size"], found["image_size"] = (size, size), tuple(options["image_size"])
    if hasattr(row, "representation_size"):
        said["representation_size"] = row.representation_size
        found["representation_size"] = options.get("representation_size")
    if not is_resnet(options):
        # All of AugReg's files have a class token and learned positions.
        said["pooling"] = getattr(row, "pooling", "token")
        said["position_embedding"] = getattr(row, "position_embedding", "learned")
        found |= {name: options.get(name, "learned") for name in ("pooling", "position_embedding")}
    different = [name for name in said if said[name] != found[name]]
    if different:
        texts = [", ".join(f"{k}={facts[k]}" for k in different) for facts in (said, found)]
        name = getattr(row, "name", None) or row.file_name
        raise ValueError(
            f"the file must hold {name} with {texts[0]}. Received: {str(file)!r}, with {texts[1]}"
        )


def _published(file):
    """The row of the catalog, or the `AugRegFile`, whose place in the cache this is, or `None`."""
    rows = list(CHECKPOINTS)
    with contextlib.suppress(ValueError):
        rows.append(parse_augreg(file.name))
    return next((row for row in rows if cache_path(row.url) == file), None)


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
