"""The public functions that build models: `build`, and one function per variant."""

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
    """Build a model from the name of its variant.

    Args:
        variant: a name from `keras_vit.list_variants()`, such as `"ViT_B16"`. Sizes can be changed
            in parentheses: `"ViT_B16(patch_size=8, depth=6)"`.
        num_classes: number of classes; 0 for no head; `None` for the number in `weights`, or 1000
            without weights. If `weights` have another number of classes, the new head is zero.
        image_size: int or `(height, width)`; `None` for the size in `weights`, or 224 without
            weights. If `weights` have another image size, position embeddings are interpolated.
        weights: `None` for random weights; a name from `keras_vit.list_checkpoints()`, in which the
            variant and the slash may be left out, such as `"imagenet21k"`; or the path or URL of a
            file that `keras_vit.from_checkpoint` reads.
        **options: fields of `keras_vit.models.VitOptions` or, for a BiT, `ResNetOptions`, except
            the sizes that the variant determines. By default they are those of `weights`.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if no variant has this name, an option is wrong, or `weights` belong to another
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
    """Return the public function that builds a variant, a row of `VARIANTS`."""
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
    """Return a builder's signature, with all options that the variant does not determine."""
    build_parameters = inspect.signature(build).parameters
    parameters = [build_parameters[name] for name in ("num_classes", "image_size", "weights")]
    for name, parameter in inspect.signature(type(row)).parameters.items():
        if name not in row.sizes and name not in build_parameters:
            parameters.append(parameter.replace(default=getattr(row, name)))
    return inspect.Signature(parameters, return_annotation=ImageModel)


# `builders.pyi` lists the names of these functions.
globals().update({builder_name(row): _builder(row) for row in VARIANTS})
