"""The public builders, one for each row of the table."""

import inspect

from keras_vit.models.variants import find_variant
from keras_vit.models.vit import vision_transformer

_pretrained_builders = []


def register_pretrained_builder(function):
    """Tells the builders who builds models with weights: `function(row, weights, ...)`.

    `keras_vit.checkpoints` reads the files and builds on the models, so these cannot import it.
    """
    _pretrained_builders[:] = [function]


def build(variant, num_classes=None, image_size=None, weights=None, **options):
    """Builds a model by the name of its variant.

    Args:
        variant: a name of `keras_vit.list_variants()`, such as `"ViT_B16"`.
        num_classes: width of the head, 0 for no head; `None` for that of the weights, or 1000. A
            number that is not that of the weights gives a new head, zero at the start.
        image_size: int or `(height, width)`; `None` for that of the weights, or 224. Another size
            than that of the weights resizes their position embeddings.
        weights: `None` for a random start; a name of `keras_vit.list_checkpoints()`, whole or
            without the builder's, such as `"imagenet21k"`; or the path or URL of any file that
            `keras_vit.from_checkpoint` reads.
        **options: as in `keras_vit.vision_transformer`, from `image_channels` on; with weights
            their own, unless given here.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if no variant has that name, an option is wrong, or the weights are of another
            architecture.

    Example:

    >>> keras_vit.models.build("ViT_Ti16", num_classes=10, image_size=32).name
    'ViT_Ti16'
    """
    row = find_variant(variant)
    if weights is not None:
        (build_pretrained,) = _pretrained_builders
        return build_pretrained(row, weights, num_classes, image_size, options)
    return vision_transformer(
        **row.architecture,
        num_classes=1000 if num_classes is None else num_classes,
        image_size=224 if image_size is None else image_size,
        **{"name": row.name, **options},
    )


def _builder(name):
    row = find_variant(name)

    def builder(num_classes=None, image_size=None, weights=None, **options):
        return build(name, num_classes, image_size, weights, **options)

    builder.__signature__ = _signature(row)
    builder.__name__ = builder.__qualname__ = name
    builder.__doc__ = (
        f"Builds {name.replace('_', '-')}: patches of {row.patch_size} pixels, "
        f"{row.depth} blocks of width {row.embedding_dim} with {row.num_heads} heads.\n\n"
        "The arguments are those of `keras_vit.models.build` and, from `image_channels` on, of\n"
        "`keras_vit.vision_transformer`.\n\n"
        "Returns:\n    A Functional `keras.Model`.\n\n"
        "Raises:\n    ValueError: if an argument is wrong, or `weights` are of another model.\n"
    )
    return builder


def _signature(row):
    """Shows every option without a second list of them."""
    own = inspect.signature(build).parameters
    options = inspect.signature(vision_transformer).parameters
    parameters = [own[name] for name in ("num_classes", "image_size", "weights")]
    for name, parameter in options.items():
        if name == "name":
            parameter = parameter.replace(default=row.name)
        if name not in row.architecture and name not in own:
            parameters.append(parameter)
    return inspect.Signature(parameters)


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
