"""The public builders, one per row of the table of variants."""

import inspect
import os
from typing import Any, Protocol

from keras_vit.checkpoints.load import build_pretrained
from keras_vit.core.arguments import check_options
from keras_vit.models.model import ImageModel
from keras_vit.models.options import DEFAULT_IMAGE_SIZE
from keras_vit.models.variants import builder_name, find_variant
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
        variant: a name of `keras_vit.list_variants()`, such as `"ViT_B16"`, with other options in
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
        "image_size": image_size or row.image_size or DEFAULT_IMAGE_SIZE,
        "name": builder_name(row),
        **options,
    }
    return build_model(row.replace(**changes))


class Builder(Protocol):
    """The type of the builders."""

    def __call__(
        self,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        weights: str | os.PathLike | None = None,
        **options: Any,
    ) -> ImageModel:
        """Build the model."""


def _builder(name: str, published: str = "") -> Builder:
    row = find_variant(name)

    def builder(num_classes=None, image_size=None, weights=None, **options):
        return build(name, num_classes, image_size, weights, **options)

    builder.__signature__ = _signature(row)
    builder.__name__ = builder.__qualname__ = name
    sizes = ", ".join(f"{option}={size!r}" for option, size in row.sizes.items() if size)
    builder.__doc__ = (
        f"Build {name.replace('_', '-')}: {sizes}.\n\n{published}"
        "The arguments are those of `keras_vit.builders.build`, and the fields of\n"
        f"`keras_vit.models.{type(row).__name__}` that are no sizes.\n\n"
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


ViT_Ti16 = _builder("ViT_Ti16")
ViT_S32 = _builder("ViT_S32")
ViT_S16 = _builder("ViT_S16")
ViT_B32 = _builder("ViT_B32")
ViT_B16 = _builder("ViT_B16")
ViT_B8 = _builder("ViT_B8")
ViT_L32 = _builder("ViT_L32")
ViT_L16 = _builder("ViT_L16")
ViT_So400m14 = _builder("ViT_So400m14")
ViT_H14 = _builder("ViT_H14")
ViT_g14 = _builder("ViT_g14")
ViT_G14 = _builder("ViT_G14")
ViT_S14 = _builder("ViT_S14", "ViT-S/14 of DINOv2.\n\n")
ViT_B14 = _builder("ViT_B14", "ViT-B/14 of DINOv2.\n\n")
ViT_L14 = _builder("ViT_L14", "ViT-L/14 of CLIP and DINOv2.\n\n")
ViT_giant14 = _builder("ViT_giant14", "ViT-g/14 of DINOv2.\n\n")
ViT_So400m16 = _builder("ViT_So400m16", "So400m/16 of SigLIP 2.\n\n")
ViT_giantopt16 = _builder("ViT_giantopt16", "g/16 of SigLIP 2, g-opt/16 in big_vision.\n\n")
ViT_Splus16 = _builder("ViT_Splus16", "ViT-S+/16 of DINOv3.\n\n")
ViT_Hplus16 = _builder("ViT_Hplus16", "ViT-H+/16 of DINOv3.\n\n")
ViT_7B16 = _builder("ViT_7B16", "ViT-7B/16 of DINOv3.\n\n")
R_Ti16 = _builder("R_Ti16", "AugReg's `R_Ti_16-...npz`, R+Ti/16 in its paper.\n\n")
R26_S32 = _builder("R26_S32", "AugReg's `R26_S_32-...npz`, R26+S/32 in its paper.\n\n")
R50_B32 = _builder("R50_B32", "From the ViT paper; its weights are not published.\n\n")
R50_B16 = _builder("R50_B16", "The ViT paper's `R50+ViT-B_16.npz`.\n\n")
R50_L32 = _builder("R50_L32", "The ViT paper's, and AugReg's `R50_L_32-...npz`.\n\n")
R50_L16 = _builder("R50_L16", "From the ViT paper; its weights are not published.\n\n")
BiT_R50x1 = _builder("BiT_R50x1", "BiT's `BiT-S-R50x1.npz`, `BiT-M-R50x1.npz`.\n\n")
BiT_R50x2 = _builder("BiT_R50x2", "From the ViT paper; its weights are not published.\n\n")
BiT_R50x3 = _builder("BiT_R50x3", "BiT's `BiT-S-R50x3.npz`, `BiT-M-R50x3.npz`.\n\n")
BiT_R101x1 = _builder("BiT_R101x1", "BiT's `BiT-S-R101x1.npz`, `BiT-M-R101x1.npz`.\n\n")
BiT_R101x3 = _builder("BiT_R101x3", "BiT's `BiT-S-R101x3.npz`, `BiT-M-R101x3.npz`.\n\n")
BiT_R152x1 = _builder("BiT_R152x1", "From the ViT paper; its weights are not published.\n\n")
BiT_R152x2 = _builder("BiT_R152x2", "BiT's `BiT-M-R152x2.npz`.\n\n")
BiT_R152x4 = _builder("BiT_R152x4", "BiT's `BiT-S-R152x4.npz`, `BiT-M-R152x4.npz`.\n\n")
BiT_R200x3 = _builder("BiT_R200x3", "From the ViT paper; its weights are not published.\n\n")
