"""Models built from checkpoint files, and checkpoint files loaded into models."""

import os
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.configuration.images import warn_of_unrecorded_images
from keras_vit.checkpoints.known_files import described_options, published_row, warn_of_assumed
from keras_vit.checkpoints.positions import resizing_for, warn_of_assumed_grid
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.weight_map import POSITIONS
from keras_vit.core.arguments import ARGUMENTS_ELSEWHERE, as_pair, check_integer
from keras_vit.core.imagenet import LABEL_FILES, imagenet_class_names
from keras_vit.models import architecture_differences
from keras_vit.models.base import ImageModel, carry
from keras_vit.models.calls.origin import set_origin
from keras_vit.models.files import WEIGHTS_SUFFIX, load_weights
from keras_vit.models.introspection import options_of
from keras_vit.models.options import DROPOUT_OPTIONS, build_model, defaults_of, match_variant
from keras_vit.models.parts import stored_grid, stored_size
from keras_vit.models.surgery import resize
from keras_vit.models.variants import builder_name, is_resnet

# Options that some files do not record; the caller may choose them.
UNRECORDED_OPTIONS = (
    *DROPOUT_OPTIONS,
    *("classifier_activation", "activation", "epsilon", "name", "dtype", "remat", "attention_path"),
)


def from_checkpoint(
    path: str | os.PathLike,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    num_heads: int | None = None,
    format: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    **options: Any,
) -> ImageModel:
    """Build the model that a checkpoint file describes, and load its weights.

    Width, depth, attention heads, patch size, grid, classes, pooling and the hidden layer of the
    head follow from the arrays. For weights trained in PyTorch, the number of attention heads, the
    epsilon and the GELU are read from the `config.json` next to them. Without it, the number of
    heads is that of the published models of that width, and the others are the defaults of timm or
    transformers. Layers that are frozen in a `.keras` file stay frozen; other files do not record
    it.

    Args:
        path: path of a `.npz`, `.safetensors` or `.keras` file, or of a directory with
            `model.safetensors` (or its shards) and `config.json`, or of a run (its best model);
            `hf://ORG/NAME`; an `https://` or `gs://` address of a file; or a name of
            `list_checkpoints()` or of an AugReg file.
        num_classes: number of classes of a new head of zeros, which replaces the head of the file
            and `pre_logits`; 0 for no head, `None` for that of the file.
        image_size: int or `(height, width)`, to which the position embeddings are resized; `None`
            for that of the file, in a `.keras` file of a model of any size that of its position
            embeddings. Some files whose grid of patches is not square do not record their
            image size: then give it. Files of ResNets do not record it either: the default is 224,
            or that of the catalog for a published file.
        num_heads: attention heads, for a file that does not record them.
        format: name of the layout, such as `"google"` or `"timm"`, a key of
            `keras_vit.checkpoints.formats.FORMATS`; `None` to recognize it.
        patch_size: int or `(height, width)`, as in `resize`; `None` for that of the file.
        **options: options of `vision_transformer` that only `.keras` files record: `dropout`,
            `attention_dropout`, `stochastic_depth`, `classifier_activation`, `name`, `dtype`,
            `remat`, `attention_path`; and `activation` and `epsilon`, which some files do not
            record. For a ResNet, `classifier_activation`, `name` and `dtype`.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if the file is damaged or cannot be reached, its arrays are not exactly those of
            one Vision Transformer or ResNet, or an argument does not fit it.

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
        stored_or_new = image_size if patch_size is None else None
        model = _load_adapted(checkpoint, described, num_classes, stored_or_new, new_head, options)
        warn_of_assumed(checkpoint, described, num_heads, options)
        if patch_size is None:
            return model
        logger.info("%s: the patch size becomes %s", checkpoint.path, patch_size)
        return resize(model, image_size, patch_size)


def load_checkpoint(model: keras.Model, path: str | os.PathLike, format: str | None = None) -> None:
    """Load a checkpoint file into a model: every array is used, and every variable is filled.

    All arrays are read and checked before the first is assigned, so an error leaves the model
    unchanged. `from_checkpoint` adapts a file to other classes or another image size.

    Args:
        model: a built model of this package.
        path: as in `from_checkpoint`, or the path of a `.weights.h5` file.
        format: as in `from_checkpoint`.

    Raises:
        ValueError: if the file does not hold exactly the weights of the model; the message lists
            unused and missing arrays and those of another shape.

    Example:
    >>> path = "tests/data/reference/a_vit_token.ckpt.npz"
    >>> model = keras_vit.from_checkpoint(path)
    >>> keras_vit.load_checkpoint(model, path)
    """
    file = find_file(path)
    if file.name.endswith(WEIGHTS_SUFFIX):
        _load_keras_weights(model, file)
        return
    with open_checkpoint(file, format) as checkpoint:
        values = checkpoint.read(model)
        _warn_of_other_functions(model, file, checkpoint)
        if checkpoint.shape_of(POSITIONS) is not None and checkpoint.configured_size is None:
            warn_of_assumed_grid(file, stored_grid(model))
        if checkpoint.archive.is_mapped:
            for _ in values:
                # Check each array without keeping it: reading it again costs little.
                pass
            values = checkpoint.read(model)
        else:
            values = list(values)
        for variable, value in values:
            assign(variable, value)
        _carry(checkpoint, model)
    set_origin(model, None if published_row(file) else file)


def build_pretrained(row, weights, num_classes, image_size, options):
    """Build the model of a variant with the given weights, for the builders.

    `weights` is as `path` in `from_checkpoint`, or a tag of the catalog. A head with another number
    of classes is replaced, position embeddings of another size are resized, and `options` are as in
    `from_checkpoint`.
    """
    file = find_file(weights, row.name, argument="weights")
    if file.name.endswith(WEIGHTS_SUFFIX):
        sizes = {"num_classes": num_classes, "image_size": image_size}
        sizes = {name: size for name, size in sizes.items() if size is not None}
        model = build_model({**row.architecture, **sizes, "name": builder_name(row), **options})
        _load_keras_weights(model, file)
        return model
    with open_checkpoint(file) as checkpoint:
        is_in_arrays = "num_heads" not in checkpoint.format.config_options
        num_heads = None if is_in_arrays else getattr(row, "num_heads", None)
        try:
            described = described_options(file, checkpoint, num_heads, image_size)
        except ValueError:
            # If the file has another architecture, say so instead of complaining about the heads.
            _check_architecture(row, described_options(file, checkpoint, None, image_size), file)
            raise
        _check_architecture(row, described, file)
        new_head = num_classes not in (None, described["num_classes"])
        described["name"] = builder_name(row)
        model = _load_adapted(checkpoint, described, num_classes, image_size, new_head, options)
        warn_of_assumed(checkpoint, described, num_heads, options)
        return model


def _load_keras_weights(model, file):
    load_weights(model, file)
    if any(variable.path == POSITIONS for variable in model.weights):
        warn_of_assumed_grid(file, stored_grid(model))


def _load_adapted(checkpoint, described, num_classes, image_size, new_head, callers_options):
    options, file_size = dict(described), described["image_size"]
    # An image processor may make borders that a model of transformers leaves out.
    whole = resizing_for(checkpoint, options, file_size).whole(file_size)
    if image_size is None and whole != (checkpoint.processed_size or whole):
        text = "%s: its image processor makes images of %dx%d pixels, the model takes %dx%d"
        logger.warning(text, checkpoint.path, *checkpoint.processed_size, *whole)
    if new_head:
        num_classes = check_integer("num_classes", num_classes, minimum=0)
        options["num_classes"] = num_classes
        if not is_resnet(options):
            options["representation_size"] = options["projection_dim"] = None
        change = (
            f"replaced by one of zeros, with {num_classes} classes" if num_classes else "removed"
        )
        logger.info("%s: its head is %s", checkpoint.path, change)
    is_resized_later = image_size is not None and not _are_fitted(options)
    if image_size is not None and not is_resized_later:
        options["image_size"] = as_pair(image_size, "image_size")
    _check_given(options, callers_options)
    ignored = checkpoint.naming.ignored
    if ignored:
        text = "%s: arrays that are left out, as no part of the model: %d, such as %s"
        logger.info(text, checkpoint.path, len(ignored), ignored[0])
    model = build_model({**options, **callers_options})
    if options["image_size"] != file_size and not is_resnet(options):
        sizes = ["x".join(map(str, size)) for size in (file_size, options["image_size"])]
        text = "%s: position embeddings are resized from %s to %s pixels"
        logger.info(text, checkpoint.path, *sizes)
    for variable, value in checkpoint.read(model, new_head, file_size):
        assign(variable, value)
    _carry(checkpoint, model, keeps_head=not new_head)
    has_new_head = new_head and num_classes > 0
    checkpoint.format.restore(checkpoint, model, has_new_head, given=callers_options)
    set_origin(model, None if published_row(checkpoint.path) else checkpoint.path)
    return resize(model, image_size) if is_resized_later else model


def _are_fitted(options):
    """Return whether the reader fits all position embeddings to another grid.

    It fits one table with a row per token; others are in `.keras` files only.
    """
    is_table = options.get("position_embedding", "learned") not in ("learned2d", "relative")
    return is_table and options.get("position_placement") != "every_layer"


def _carry(checkpoint, model, keeps_head=True):
    """Record on a model what the file of its weights says besides; see `ImageModel`."""
    saved = getattr(checkpoint.archive, "model", None)
    if saved is not None:
        carry(saved, model, keeps_head)
    elif isinstance(model, ImageModel):
        model.normalization = checkpoint.normalization
        model.resizing = resizing_for(checkpoint, model.options, stored_size(model))
        model.layout = checkpoint.format.name
        if checkpoint.format.has_normalizations and not checkpoint.records_images:
            warn_of_unrecorded_images(checkpoint.path)
        if keeps_head:
            num_classes = model.options["num_classes"]
            if num_classes == 0 and (kind := checkpoint.classifier_kind):
                text = "%s has no classifier, though its config.json says %s: the model has no head"
                logger.warning(text, checkpoint.path, kind)
            names = checkpoint.class_names(num_classes)
            if names is None and num_classes in LABEL_FILES and published_row(checkpoint.path):
                names = imagenet_class_names(num_classes)
            model.class_names = names


def _check_given(options, callers_options):
    """Raise an error if the caller gave an option another value than the file records."""
    recorded = {**defaults_of(options), **options}
    for name, value in callers_options.items():
        if name not in recorded:
            family = "ResNet" if is_resnet(options) else "Vision Transformer"
            own = ARGUMENTS_ELSEWHERE.get(name)
            raise ValueError(
                f"`{name}` must not be given for the file of a {family}: it has no such option"
                f"{f', which is `{own}` here' if own else ''}. Received: {name}={value!r}"
            )
        if name not in UNRECORDED_OPTIONS and value != recorded[name]:
            raise ValueError(
                f"`{name}` must be that of the file, {recorded[name]!r}, or not be given. "
                f"Received: {name}={value!r}"
            )
        if name in ("activation", "epsilon") and value != recorded[name]:
            logger.info("%s=%r replaces %r, which is read without it", name, value, recorded[name])


def assign(variable, value):
    """Assign a copy of a value, which may be a view of a file or of another model's variable."""
    # JAX would use NumPy's buffer as that of the variable, and donate it in training.
    variable.assign(np.array(value))


def _check_architecture(row, described, file):
    different = architecture_differences(row, described)
    if different:
        pairs = ", ".join(f"{k}={v} instead of {wanted}" for k, (v, wanted) in different.items())
        raise ValueError(
            f"`weights` must be those of {row.name}. Received: weights={str(file)!r}, with {pairs}"
        )


def _warn_of_other_functions(model, file, checkpoint):
    """Log a warning for each option that changes outputs and differs between file and model."""
    ours = options_of(model)
    theirs = described_options(file, checkpoint, ours.get("num_heads"), stored_size(model))
    names = ["classifier_activation"]
    if not is_resnet(ours):
        names += ["activation", "epsilon", "position_embedding", "position_placement"]
        # Only `.keras` files have another one.
        theirs.setdefault("position_placement", "stem")
        # A pooling that is only assumed cannot contradict the model.
        if "pooling" not in checkpoint.options_without_config:
            names.append("pooling")
    for name in names:
        if theirs.get(name, ours[name]) != ours[name]:
            text = "%s: the model has %s=%r, the file %r"
            logger.warning(text, checkpoint.path, name, ours[name], theirs[name])
