"""List published checkpoints, and find one by its name. These functions do not need Keras."""

from keras_vit.checkpoints.catalog.published import (
    GOOGLE_CHECKPOINTS,
    HUB_CHECKPOINTS,
    TORCHVISION_CHECKPOINTS,
    Checkpoint,
)

CHECKPOINTS = (*GOOGLE_CHECKPOINTS, *HUB_CHECKPOINTS, *TORCHVISION_CHECKPOINTS)

__all__ = ["CHECKPOINTS", "Checkpoint", "find_checkpoint", "list_checkpoints"]


def list_checkpoints(filter: str = "") -> tuple[Checkpoint, ...]:
    """Return the published checkpoints, optionally filtered by words.

    Args:
        filter: words separated by spaces. A checkpoint is listed if each word is in its name or
            its URL, in upper or lower case.

    Returns:
        A tuple of `Checkpoint`. The `name` of each is valid as `weights` of a builder.

    Example:

    >>> from keras_vit.checkpoints.catalog import list_checkpoints
    >>> [row.name for row in list_checkpoints("b16 augreg")]
    ['ViT_B16/augreg_imagenet21k', 'ViT_B16/augreg_imagenet2012_384', 'ViT_B16/augreg_imagenet2012']
    """
    words = filter.lower().split()
    return tuple(
        row for row in CHECKPOINTS if all(word in f"{row.name} {row.url}".lower() for word in words)
    )


def find_checkpoint(name: str, variant: str | None = None, argument: str = "name") -> Checkpoint:
    """Return the published checkpoint with this name.

    Args:
        name: name, such as `"ViT_B16/imagenet21k"`. If `variant` is given, the part of the name
            after the slash (the tag) is enough.
        variant: name of the builder of the model.
        argument: name of the argument, for error messages.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: if no published checkpoint has this name and variant.

    Example:

    >>> from keras_vit.checkpoints.catalog import find_checkpoint
    >>> find_checkpoint("imagenet21k", "ViT_B16").url
    'gs://vit_models/imagenet21k/ViT-B_16.npz'
    """
    rows = {row.name: row for row in CHECKPOINTS if variant in (None, row.variant)}
    whole = name if variant is None or "/" in name else f"{variant}/{name}"
    if whole not in rows:
        of = f" of {variant}" if variant else ""
        raise ValueError(
            f"`{argument}` must be an existing file or directory, or the name of a checkpoint{of} "
            f"in `list_checkpoints()`. Received: {argument}={name!r}"
        )
    return rows[whole]
