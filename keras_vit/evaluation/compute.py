"""What a model costs, from its table row alone."""


def count_parameters(variant, num_classes=1000, image_size=224, pooling="token"):
    """Parameters of a Vision Transformer with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: `"token"` or `"gap"`.

    Returns:
        An integer.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    width, hidden = variant.embedding_dim, variant.mlp_dim
    class_token = pooling == "token"
    patches = (image_size // variant.patch_size) ** 2
    embedding = variant.patch_size**2 * 3 * width + width
    positions = (patches + class_token) * width + class_token * width
    attention = 4 * (width * width + width)
    mlp = width * hidden + hidden + hidden * width + width
    block = attention + mlp + 2 * 2 * width
    head = num_classes * (width + 1)
    return embedding + positions + variant.depth * block + 2 * width + head


def count_flops(variant, num_classes=1000, image_size=224):
    """Floating-point operations of one image's forward pass, with a class token.

    A multiplication and an addition are two operations. Matrix products alone are counted; all else
    is below 1 %.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.

    Returns:
        An integer.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = (image_size // variant.patch_size) ** 2
    tokens = patches + 1
    embedding = patches * variant.patch_size**2 * 3 * width
    projections = 4 * tokens * width * width
    attention = 2 * tokens * tokens * width
    mlp = 2 * tokens * width * hidden
    block = projections + attention + mlp
    return 2 * (embedding + variant.depth * block + width * num_classes)
