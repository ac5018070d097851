"""The public builders, one per row of the table of variants."""

import inspect
import os
from typing import Any

from keras_vit.checkpoints.load import build_pretrained
from keras_vit.core.arguments import check_options
from keras_vit.models.image_model import ImageModel
from keras_vit.models.options import DEFAULT_IMAGE_SIZE
from keras_vit.models.variants import VARIANTS, builder_name, find_variant
from keras_vit.models.vit import build_model


def build(
    variant: str,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    weights: str | os.PathLike | None = None,
    **options: Any,
) -> ImageModel:
    """Build a model by the name of its variant.

    Args:
        variant: a name of `keras_vit.list_variants()`, such as `"ViT_B16"`, with other sizes in
            parentheses if wanted: `"ViT_B16(patch_size=8, depth=6)"`.
        num_classes: width of the head, 0 for no head; `None` for that of the weights, or 1000. If
            the weights have another number of classes, the head is new and zero at the start.
        image_size: int or `(height, width)`; `None` for that of the weights, or 224. If the weights
            have another image size, their position embeddings are resized.
        weights: `None` for a random start; a name of `keras_vit.list_checkpoints()`, whole or
            without the builder's, such as `"imagenet21k"`; or the path or URL of any file that
            `keras_vit.from_checkpoint` reads.
        **options: fields of `keras_vit.models.VitOptions` or, for a BiT, `ResNetOptions`, except
            the sizes that the name determines; by default those of the weights, if there are any.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if no variant has that name, an option is wrong, or the weights have another
            architecture.

    Example:

    >>> from keras_vit.builders import build
    >>> build("ViT_Ti16", num_classes=10, image_size=32).name
    'ViT_Ti16'
    """
    row = find_variant(variant)
    check_options(row.name, options, _signature(row).parameters)
    if weights is not None:
        return build_pretrained(row, weights, num_classes, image_size, options)
    changes = {
        "num_classes": row.num_classes if num_classes is None else num_classes,
        "image_size": DEFAULT_IMAGE_SIZE if image_size is None else image_size,
        "name": builder_name(row),
        **options,
    }
    return build_model(row.replace(**changes))


def _builder(row):
    """Return the builder of a row of the table."""
    name = builder_name(row)

    def builder(num_classes=None, image_size=None, weights=None, **options):
        return build(name, num_classes, image_size, weights, **options)

    builder.__signature__ = _signature(row)
    builder.__name__ = builder.__qualname__ = name
    sizes = ", ".join(f"{option}={size!r}" for option, size in row.sizes.items() if size)
    builder.__doc__ = (
        f"Build {name.replace('_', '-')}: {sizes}.\n\n"
        "The arguments are those of `keras_vit.builders.build`, and the fields of\n"
        f"`keras_vit.models.{type(row).__name__}` that are not sizes.\n\n"
        "Returns:\n    A Functional `keras.Model`.\n\n"
        "Raises:\n    ValueError: if an argument is wrong, or `weights` are of another model.\n"
    )
    return builder


def _signature(row):
    """Return the signature with all options that the name does not determine."""
    own = inspect.signature(build).parameters
    parameters = [own[name] for name in ("num_classes", "image_size", "weights")]
    for name, parameter in inspect.signature(type(row)).parameters.items():
        if name not in row.sizes and name not in own:
            parameters.append(parameter.replace(default=getattr(row, name)))
    return inspect.Signature(parameters, return_annotation=ImageModel)


# The stub lists their names.
globals().update({builder_name(row): _builder(row) for row in VARIANTS})
