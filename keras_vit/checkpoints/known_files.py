"""The options of a file: those that it describes, and those that the catalog has for it."""

import contextlib

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.download import cache_path
from keras_vit.checkpoints.catalog.hub import HUB, is_of_repository
from keras_vit.checkpoints.positions import DEFAULT_IMAGE_SIZE
from keras_vit.checkpoints.weight_map import POSITIONS
from keras_vit.models.options import defaults_of, match_variant
from keras_vit.models.variants import is_resnet


def described_options(file, checkpoint, num_heads=None, image_size=None):
    """Return the options that a file describes, with those that the catalog has for its name.

    No `.npz` file records the form of the GELU: that of DeiT III, trained in PyTorch, is another
    one. No file of a ResNet records an image size.
    """
    options = checkpoint.options(num_heads, image_size)
    variant = getattr(match_variant(options), "name", None)
    rows = [
        row for row in CHECKPOINTS if row.url.endswith(f"/{file.name}") and row.variant == variant
    ]
    _check_published(file, checkpoint, options, variant)
    if image_size is None and not checkpoint.records_image_size:
        known = rows[0].image_size if len(rows) == 1 else DEFAULT_IMAGE_SIZE
        options["image_size"] = (known, known)
        how = "by its name it is" if len(rows) == 1 else "it is assumed to be"
        logger.warning("%s does not record its image size: %s %d pixels", file, how, known)
    if not is_resnet(options):
        has_table = checkpoint.shape_of(POSITIONS) is not None
        has_fixed = "sincos2d" in checkpoint.format.position_embeddings
        if has_fixed and not rows and not has_table:
            logger.warning(
                "%s has no position embedding: the fixed sines and cosines are assumed", file
            )
        known = {row.activation for row in rows}
        if len(known) == 1:
            (options["activation"],) = known
        if known == {"gelu"}:
            logger.info("%s: by its name, a published file with the erf GELU", file)
    return options


def warn_of_assumed(checkpoint, described, num_heads=None, given=()):
    """Warn of the options that are assumed for a file without a `config.json`.

    `described` are the options of the file, `given` the names of those that the caller gave.
    """
    assumed = checkpoint.assumed(described, num_heads)
    assumed = [f"{name}={value}" for name, value in assumed.items() if name not in given]
    if assumed:
        logger.warning(
            "%s has no config.json. Its arrays do not record these options, which are assumed: %s",
            checkpoint.path,
            ", ".join(assumed),
        )


def _check_published(file, checkpoint, options, variant):
    """Raise an error if a file in the cache, under the name of a published one, is another."""
    row = published_row(file)
    # Nobody else puts files into the cache of the Hub.
    if row is None or row.url.startswith(HUB):
        return
    found = {**defaults_of(options), **options, "variant": variant}
    expected = {"variant": row.variant, "num_classes": row.num_classes}
    if checkpoint.records_image_size:
        expected["image_size"] = (getattr(row, "image_size", None) or row.resolution,) * 2
    if hasattr(row, "representation_size"):
        expected["representation_size"] = row.representation_size
    if not is_resnet(options):
        # All of AugReg's files have a class token and learned positions.
        expected["pooling"] = getattr(row, "pooling", "token")
        expected["position_embedding"] = getattr(row, "position_embedding", "learned")
    different = [name for name in expected if expected[name] != found.get(name)]
    if different:
        texts = [", ".join(f"{k}={facts.get(k)}" for k in different) for facts in (expected, found)]
        name = getattr(row, "name", None) or row.file_name
        raise ValueError(
            f"the file must hold {name} with {texts[0]}. Received: {str(file)!r}, with {texts[1]}"
        )


def published_row(file):
    """Return the row of the catalog, or the `AugRegFile`, for a file in the cache, or `None`."""
    rows = list(CHECKPOINTS)
    with contextlib.suppress(ValueError):
        rows.append(parse_augreg(file.name))
    return next((row for row in rows if _is_file_of(row.url, file)), None)


def _is_file_of(url, file):
    return is_of_repository(file, url) if url.startswith(HUB) else cache_path(url) == file
