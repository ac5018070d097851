"""The table of variants, which are architectures with a name, and functions to find variants."""

import ast

from keras_vit.core.arguments import check_options
from keras_vit.models.options import Options, ResNetOptions, VitOptions, is_resnet


def _vit(name, patch_size, width, depth, num_heads, mlp_dim, resnet_stages=None, gated_mlp=False):
    sizes = patch_size, width, depth, num_heads, mlp_dim
    # Gated MLPs of published models are SwiGLUs.
    changes = {"gated_mlp": True, "activation": "silu"} if gated_mlp else {}
    return VitOptions(*sizes, resnet_stages=resnet_stages, image_size=None, name=name, **changes)


def _bit(name, stages, width):
    return ResNetOptions(stages, width, image_size=None, name=name)


# B, L, H: table 1 of the ViT paper (arXiv 2010.11929). Ti, S: DeiT's sizes, as in AugReg
# (arXiv 2106.10270). g, G: Scaling Vision Transformers (arXiv 2106.04560). So400m: SoViT
# (arXiv 2305.13035). The sizes agree with `big_vision/models/vit.py`.
VARIANTS = (
    _vit("ViT_Ti16", 16, 192, 12, 3, 768),
    _vit("ViT_S32", 32, 384, 12, 6, 1536),
    _vit("ViT_S16", 16, 384, 12, 6, 1536),
    _vit("ViT_B32", 32, 768, 12, 12, 3072),
    _vit("ViT_B16", 16, 768, 12, 12, 3072),
    _vit("ViT_B8", 8, 768, 12, 12, 3072),
    _vit("ViT_L32", 32, 1024, 24, 16, 4096),
    _vit("ViT_L16", 16, 1024, 24, 16, 4096),
    _vit("ViT_So400m14", 14, 1152, 27, 16, 4304),
    _vit("ViT_H14", 14, 1280, 32, 16, 5120),
    _vit("ViT_g14", 14, 1408, 40, 16, 6144),
    _vit("ViT_G14", 14, 1664, 48, 16, 8192),
    # DINOv2 (arXiv 2304.07193) and CLIP (arXiv 2103.00020); giant14 is DINOv2's ViT-g/14.
    _vit("ViT_S14", 14, 384, 12, 6, 1536),
    _vit("ViT_B14", 14, 768, 12, 12, 3072),
    _vit("ViT_L14", 14, 1024, 24, 16, 4096),
    _vit("ViT_giant14", 14, 1536, 40, 24, 4096, gated_mlp=True),
    # SigLIP 2 (arXiv 2502.14786).
    _vit("ViT_So400m16", 16, 1152, 27, 16, 4304),
    _vit("ViT_giantopt16", 16, 1536, 40, 16, 6144),
    # DINOv3 (arXiv 2508.10104). Its other models have the sizes of ViT_S16, ViT_B16 and ViT_L16.
    _vit("ViT_Splus16", 16, 384, 12, 6, 1536, gated_mlp=True),
    _vit("ViT_Hplus16", 16, 1280, 32, 20, 5120, gated_mlp=True),
    _vit("ViT_7B16", 16, 4096, 40, 32, 8192, gated_mlp=True),
    # Hybrids. As in section 3.1 of the ViT paper, R50_B32 and R50_L32 use the four stages of a
    # ResNet-50. R50_B16 and R50_L16 use three stages, and add the units of the fourth to the third.
    # The other hybrids are AugReg's, from `vit_jax/configs/models.py`. R_Ti16 has only the root of
    # a ResNet, and one token represents 32 x 32 pixels.
    _vit("R_Ti16", 8, 192, 12, 3, 768, ()),
    _vit("R26_S32", 1, 384, 12, 6, 1536, (2, 2, 2, 2)),
    _vit("R50_B32", 1, 768, 12, 12, 3072, (3, 4, 6, 3)),
    _vit("R50_B16", 1, 768, 12, 12, 3072, (3, 4, 9)),
    _vit("R50_L32", 1, 1024, 24, 16, 4096, (3, 4, 6, 3)),
    _vit("R50_L16", 1, 1024, 24, 16, 4096, (3, 4, 9)),
    # BiT (arXiv 1912.11370), including sizes of BiT that only the ViT paper has.
    _bit("BiT_R50x1", (3, 4, 6, 3), 64),
    _bit("BiT_R50x2", (3, 4, 6, 3), 128),
    _bit("BiT_R50x3", (3, 4, 6, 3), 192),
    _bit("BiT_R101x1", (3, 4, 23, 3), 64),
    _bit("BiT_R101x3", (3, 4, 23, 3), 192),
    _bit("BiT_R152x1", (3, 8, 36, 3), 64),
    _bit("BiT_R152x2", (3, 8, 36, 3), 128),
    _bit("BiT_R152x4", (3, 8, 36, 3), 256),
    _bit("BiT_R200x3", (3, 24, 36, 3), 192),
)


def list_variants() -> tuple[Options, ...]:
    """Return the table of variants.

    Returns:
        A tuple of options, each with a `name` and without an image size. First come plain Vision
        Transformers by width and then by sequence length, then Vision Transformers of later papers,
        then hybrids (all `VitOptions`), and last BiT ResNets (`ResNetOptions`).

    Example:
    >>> [row.name for row in keras_vit.list_variants()][:3]
    ['ViT_Ti16', 'ViT_S32', 'ViT_S16']
    """
    return VARIANTS


def find_variant(name: str) -> Options:
    """Return the options of the variant with a name.

    Sizes may be changed by arguments in parentheses after the name, as in Python. The `name` of the
    returned options then lists the sizes that differ from the table.

    Example:
    >>> find_variant("ViT_Ti16").depth, find_variant("ViT_Ti16(patch_size=4, depth=6)").depth
    (12, 6)
    """
    known, parenthesis, _ = str(name).partition("(")
    for row in VARIANTS:
        if row.name == known:
            return _with_arguments(row, name) if parenthesis else row
    raise ValueError(
        "`variant` must be the name of an architecture in `keras_vit.list_variants()`. "
        f"Received: variant={name!r}"
    )


def with_sizes(row, changes):
    """Return a variant with changed sizes, which the new name lists in parentheses."""
    base = find_variant(builder_name(row))
    changed = row.replace(**changes, name=base.name)
    values = {name: (getattr(changed, name), getattr(base, name)) for name in vars(changed)}
    listed = [f"{n}={_short(n, new)!r}" for n, (new, old) in sorted(values.items()) if new != old]
    return changed.replace(name=f"{base.name}({', '.join(listed)})" if listed else base.name)


def _short(name, value):
    return value[0] if name == "patch_size" and value[0] == value[1] else value


def _with_arguments(row, text):
    """Return the variant that a text such as `"ViT_Ti16(depth=6)"` describes."""
    try:
        call = ast.parse(text, mode="eval").body
        if not call.keywords or call.args:
            raise ValueError("only keyword arguments are allowed")
        changes = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        check_options(row.name, changes, row.sizes)
        return with_sizes(row, changes)
    except (AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            "The sizes of a variant must be keyword arguments in parentheses, such as "
            f"'ViT_Ti16(patch_size=4, depth=6)'. Received: variant={text!r} ({error})"
        ) from error


def builder_name(row):
    """Return the name of a variant without the changed sizes in parentheses."""
    return row.name.partition("(")[0]


def is_variant(model):
    """Whether a string is the name of a variant, even if a path has the same name."""
    name = model.partition("(")[0] if isinstance(model, str) else None
    return any(row.name == name for row in VARIANTS)


def match_variant(options: Options) -> Options | None:
    """Return the variant with the sizes of these options, or `None`."""
    return next((row for row in VARIANTS if not size_differences(row, options)), None)


def size_differences(row, options):
    """Return `{name: (size, size of the variant)}` for the sizes that differ.

    If one of the two is a ResNet and the other is a Transformer, the only name is `"family"`.
    """
    if type(row) is not type(options):
        families = ("a ResNet", "a Vision Transformer")
        return {"family": families if is_resnet(options) else families[::-1]}
    pairs = {name: (size, row.sizes[name]) for name, size in options.sizes.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
