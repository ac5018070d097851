"""Build models from checkpoint files, and load checkpoint files into models."""

import contextlib
import os
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.download import cache_path, find_file
from keras_vit.checkpoints.catalog.hub import HUB, is_from_repository
from keras_vit.checkpoints.configuration import warn_of_unrecorded_images
from keras_vit.checkpoints.position_rows import image_spec_for, warn_of_assumed_grid
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.weight_map import POSITIONS
from keras_vit.core.arguments import as_pair, check_options
from keras_vit.core.text import LABEL_FILES, imagenet_class_names
from keras_vit.models.image_model import ImageModel, copy_attributes
from keras_vit.models.keras_files import WEIGHTS_SUFFIX, load_weights
from keras_vit.models.options import DEFAULT_IMAGE_SIZE, NO_HEAD_LAYERS, is_resnet
from keras_vit.models.structure import stored_grid, stored_size
from keras_vit.models.surgery import resize_by, with_channels
from keras_vit.models.variants import builder_name, match_variant, size_differences
from keras_vit.models.vit import build_model


def from_checkpoint(
    path: str | os.PathLike,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    num_heads: int | None = None,
    format: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    key: str | None = None,
    image_channels: int | None = None,
    **options: Any,
) -> ImageModel:
    """Build the model that a checkpoint file describes, and load its weights.

    The arrays determine width, depth, patch size, grid, number of classes, pooling and the hidden
    layer of the head. In files of Flax, the arrays also determine the number of attention heads.
    For weights trained in PyTorch, the number of heads, the epsilon and the GELU are read from the
    `config.json` next to the file. Without a `config.json`, the number of heads is that of
    published models of the same width, and epsilon and GELU are the defaults of timm or
    transformers. Frozen layers of a `.keras` file stay frozen; other files do not record which
    layers are frozen.

    Args:
        path: path of a `.npz`, `.safetensors`, `.keras`, `.h5`, `.pth`, `.pt`, `.bin` or `.ckpt`
            file; path of a directory with `model.safetensors` or `pytorch_model.bin` (or shards)
            and `config.json`, or with the files of open_clip; or path of a run's directory, for
            the best model of the run. Or an address: `hf://ORG/NAME`, or `https://` or `gs://` for
            a file. Or a name: of a checkpoint in `list_checkpoints()`, or of an AugReg file.
        num_classes: number of classes of a new head, which is zero and replaces the head of the
            file and `pre_logits`. 0 for no head, `None` to keep the head of the file.
        image_size: int or `(height, width)`, to which the position embeddings are resized. `None`
            for the image size of the file; if the model of a `.keras` file takes images of any
            size, this is the size of its position embeddings. An image size is required if the
            grid of patches is not square and the file does not record the size. Files of ResNets
            never record it: the default is the size in the catalog for a published file, and
            otherwise 224.
        num_heads: number of attention heads, for a file that does not record it.
        format: name of the layout, such as `"google"` or `"timm"`, a key of
            `keras_vit.checkpoints.formats.FORMATS`; `None` to recognize it.
        patch_size: int or `(height, width)`, as in `resize`; `None` for the patch size of the file.
        key: name of the dictionary in a file of PyTorch, such as `"model_ema"`, or prefix of the
            names of arrays, such as `"teacher.backbone"`; needed if a file holds the weights of
            several models.
        image_channels: number of channels of an image; `None` for that of the file. With another
            number, the first kernel is adapted as in timm: for one channel, the kernels of the
            channels are added; otherwise they are repeated, and multiplied by the old number of
            channels divided by the new one. A Vision Transformer with one channel returns for a
            gray image the same logits as the model of the file for three equal channels.
        **options: fields of `VitOptions` or `ResNetOptions` that files of other projects do not
            record: `dropout`, `attention_dropout`, `stochastic_depth`, `classifier_activation`,
            `name`, `dtype`, `remat` and `attention_path`. Only some files record `activation` and
            `epsilon`, so these are allowed too.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if the file is damaged or cannot be reached, its arrays are not exactly the
            weights of one Vision Transformer or ResNet, or an argument does not fit the file.

    Example:
    >>> model = keras_vit.from_checkpoint("tests/data/reference/a_vit_token.ckpt.npz")
    >>> model.output.shape
    (None, 10)
    """
    file = find_file(path)
    with open_checkpoint(file, format, key) as checkpoint:
        described = describe_checkpoint(checkpoint, num_heads, image_size)
        row = match_variant(described)
        # Keep the name that a .keras file records for its model.
        if row is not None and not checkpoint.format.open:
            described = described.replace(name=row.name)
        warn_of_assumed(checkpoint, described, num_heads, options)
        model = _build(checkpoint, described, num_classes, options)
    return _adapted(model, checkpoint, image_size, patch_size, image_channels)


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    format: str | None = None,
    key: str | None = None,
) -> None:
    """Load a checkpoint file into a model, using every array and filling every variable.

    All arrays are read and checked before the first is assigned, so an error leaves the model
    unchanged. To change the number of classes or the image size, use `from_checkpoint`.

    Args:
        model: a built model of this package.
        path: as in `from_checkpoint`, or the path of a `.weights.h5` file.
        format: as in `from_checkpoint`.
        key: as in `from_checkpoint`.

    Raises:
        ValueError: if the file does not hold exactly the weights of the model; the message lists
            the arrays that are unused, missing or of a wrong shape.

    Example:
    >>> path = "tests/data/reference/a_vit_token.ckpt.npz"
    >>> model = keras_vit.from_checkpoint(path)
    >>> keras_vit.load_checkpoint(model, path)
    """
    file = find_file(path)
    if file.name.endswith(WEIGHTS_SUFFIX):
        _load_keras_weights(model, file)
        return
    with open_checkpoint(file, format, key) as checkpoint:
        values = list(checkpoint.read(model))
        _warn_of_differences(model, checkpoint)
        if checkpoint.shape_of(POSITIONS) is not None and checkpoint.configured_size is None:
            warn_of_assumed_grid(file, stored_grid(model))
        for variable, value in values:
            assign(variable, value)
        _set_attributes(checkpoint, model)


def build_pretrained(row, weights, num_classes, image_size, options):
    """Build a pretrained model of a variant, for the functions of `keras_vit.builders`.

    `row` contains the options of the variant. `weights` is a `path` of `from_checkpoint`, or the
    `tag` of a `Checkpoint` of the variant. The head is replaced if `num_classes` differs from the
    file, and position embeddings are resized if `image_size` differs. `options` are as in
    `from_checkpoint`.
    """
    file = find_file(weights, row.name, argument="weights")
    if file.name.endswith(WEIGHTS_SUFFIX):
        sizes = {"num_classes": num_classes, "image_size": image_size or DEFAULT_IMAGE_SIZE}
        sizes = {name: size for name, size in sizes.items() if size is not None}
        model = build_model(row.replace(name=builder_name(row), **sizes, **options))
        _load_keras_weights(model, file)
        return model
    channels = options.pop("image_channels", None)
    with open_checkpoint(file) as checkpoint:
        is_recorded = "num_heads" not in checkpoint.format.config_options
        num_heads = None if is_recorded else getattr(row, "num_heads", None)
        described = describe_checkpoint(checkpoint, num_heads, image_size)
        different = size_differences(row, described)
        if different:
            pairs = ", ".join(f"{k}={v} instead of {ours}" for k, (v, ours) in different.items())
            raise ValueError(
                f"`weights` must be those of {row.name}. Received: weights={str(file)!r}, with "
                f"{pairs}"
            )
        described = described.replace(name=builder_name(row))
        warn_of_assumed(checkpoint, described, num_heads, options)
        new_classes = None if num_classes == described.num_classes else num_classes
        model = _build(checkpoint, described, new_classes, options)
    return _adapted(model, checkpoint, image_size, image_channels=channels)


def describe_checkpoint(checkpoint, num_heads=None, image_size=None):
    """Return the options of the model in a file, completed from the catalog.

    The row of the catalog for this file name contains the GELU, which no `.npz` file records: DeiT
    III's models were trained in PyTorch with the erf GELU. The row also contains the image size,
    which no file of a ResNet records.
    """
    file = checkpoint.path
    options = checkpoint.options(num_heads, image_size)
    variant = getattr(match_variant(options), "name", None)
    rows = [
        row for row in CHECKPOINTS if row.url.endswith(f"/{file.name}") and row.variant == variant
    ]
    if image_size is None and not checkpoint.records_image_size:
        size = rows[0].image_size if len(rows) == 1 else DEFAULT_IMAGE_SIZE
        options = options.replace(image_size=size)
        how = "by its file name it is" if len(rows) == 1 else "it is assumed to be"
        logger.warning("%s does not record its image size: %s %d pixels", file, how, size)
    if is_resnet(options):
        return options
    has_table = checkpoint.shape_of(POSITIONS) is not None
    if "sincos2d" in checkpoint.format.position_embeddings and not rows and not has_table:
        text = "%s has no position embedding: the fixed sines and cosines are assumed"
        logger.warning(text, file)
    activations = {row.activation for row in rows}
    return options.replace(activation=activations.pop()) if len(activations) == 1 else options


def warn_of_assumed(checkpoint, described, num_heads=None, overrides=()):
    """Warn of the options that are assumed for a file without a `config.json`.

    `described` are the options of the file, `overrides` the names of options that the caller sets.
    """
    assumed = checkpoint.assumed(described, num_heads)
    assumed = [f"{name}={value}" for name, value in assumed.items() if name not in overrides]
    if assumed:
        logger.warning(
            "%s has no config.json. Its arrays do not record these options, which are assumed: %s",
            checkpoint.path,
            ", ".join(assumed),
        )


def is_published(file):
    """Return whether a file was downloaded from the catalog or the AugReg release."""
    rows = list(CHECKPOINTS)
    with contextlib.suppress(ValueError):
        rows.append(parse_augreg(file.name))
    return any(
        is_from_repository(file, row.url)
        if row.url.startswith(HUB)
        else cache_path(row.url) == file
        for row in rows
    )


def _load_keras_weights(model, file):
    load_weights(model, file)
    if any(variable.path == POSITIONS for variable in model.weights):
        warn_of_assumed_grid(file, stored_grid(model))


def _build(checkpoint, described, num_classes, overrides):
    """Build a model at its file's image size; replace the head unless `num_classes` is `None`."""
    # `full_size` includes the border that does not fill a patch, which the model ignores.
    spec = image_spec_for(checkpoint, described, described.image_size)
    size = spec.full_size(described.image_size)
    if size != (checkpoint.processed_size or size):
        text = "%s: its image processor makes images of %dx%d pixels, but the model takes %dx%d"
        logger.warning(text, checkpoint.path, *checkpoint.processed_size, *size)
    options, has_new_head = described, num_classes is not None
    if has_new_head:
        options = options.replace(num_classes=num_classes)
        if not is_resnet(options):
            options = options.replace(**NO_HEAD_LAYERS)
        text = "%s: its head is replaced by a new head of zeros, for %d classes"
        logger.info(text, checkpoint.path, num_classes)
    _check_overrides(options, overrides)
    if ignored := checkpoint.naming.ignored:
        text = "%s: %d arrays are ignored, because they are not part of the model, such as %s"
        logger.info(text, checkpoint.path, len(ignored), ignored[0])
    model = build_model(options.replace(**overrides))
    for variable, value in checkpoint.read(model, has_new_head, is_built_from_file=True):
        assign(variable, value)
    _set_attributes(checkpoint, model, keeps_head=not has_new_head)
    checkpoint.format.restore(checkpoint, model, bool(has_new_head and num_classes))
    return model


def _adapted(model, checkpoint, image_size, patch_size=None, image_channels=None):
    """Return the model, adapted to the image size, patch size and channels that are not `None`."""
    size = None if image_size is None else as_pair(image_size, "image_size")
    if patch_size is not None or size not in (None, model.input_shape[1:3]):
        old = model.input_shape[1:3]
        model = resize_by(checkpoint.format.interpolation, model, image_size, patch_size)
        text = "%s: the model is resized from images of %s to %s pixels"
        logger.info(text, checkpoint.path, old, model.input_shape[1:3])
    channels = model.input_shape[-1]
    if image_channels in (None, channels):
        return model
    text = "%s: the first kernel is adapted from images with %d channels to %d channels"
    logger.info(text, checkpoint.path, channels, image_channels)
    return with_channels(model, image_channels)


def _set_attributes(checkpoint, model, keeps_head=True):
    """Set the attributes of an `ImageModel` that the file of its weights records."""
    saved = getattr(checkpoint.archive, "model", None)
    if saved is not None:
        options = model.options
        copy_attributes(saved, model, keeps_head)
        model.options = options
    elif isinstance(model, ImageModel):
        model.image_spec = image_spec_for(checkpoint, model.options, stored_size(model))
        model.layout = checkpoint.format.name
        if checkpoint.format.has_normalizations and not checkpoint.records_images:
            warn_of_unrecorded_images(checkpoint.path, checkpoint.format.image_spec)
        num_classes = model.options.num_classes
        if keeps_head:
            names = checkpoint.class_names(num_classes)
            if names is None and num_classes in LABEL_FILES and is_published(checkpoint.path):
                names = imagenet_class_names(num_classes)
            model.class_names = names


def _check_overrides(options, overrides):
    """Raise an error if the caller's value of an option contradicts the file."""
    check_options("from_checkpoint", overrides, vars(options))
    # The file determines the other options, except that some files lack activation and epsilon.
    free = options.names("training", "runtime")
    for name, value in overrides.items():
        if name in ("classifier_activation", *free):
            continue
        recorded = getattr(options.resolved(), name)
        if name not in ("activation", "epsilon") and value != recorded:
            raise ValueError(
                f"`{name}` must be that of the file, {recorded!r}, or not be given. "
                f"Received: {name}={value!r}"
            )
        if value != recorded:
            logger.info("%s=%r replaces %r of the file", name, value, recorded)


def assign(variable, value):
    """Assign a copy of a value, which may be a view of a file or of another model's variable."""
    # Without a copy, a variable of JAX may share NumPy's buffer, which training would overwrite.
    variable.assign(np.array(value))


def _warn_of_differences(model, checkpoint):
    """Warn of options that change outputs and differ between the file and the model."""
    options = getattr(model, "options", None)
    if options is None:
        return
    num_heads = getattr(options, "num_heads", None)
    recorded = describe_checkpoint(checkpoint, num_heads, stored_size(model))
    names = ["classifier_activation"]
    if not is_resnet(options):
        names += ["activation", "epsilon", "unit_norm"]
        names += ["position_embedding", "position_placement"]
        # If the pooling is only assumed, a difference says nothing about the file.
        names += ["pooling"] if "pooling" not in checkpoint.options_without_config else []
    for name in names:
        value, other = getattr(options, name), getattr(recorded, name)
        if value != other:
            text = "%s: the model has %s=%r, the file %r"
            logger.warning(text, checkpoint.path, name, value, other)
