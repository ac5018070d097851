"""The table of architectures, and the sizes that follow from one; nothing here needs Keras."""

import ast
import dataclasses
import difflib
import re

from keras_vit.core.arguments import as_pair, grid_size, is_integer
from keras_vit.core.files import exists


@dataclasses.dataclass(frozen=True)
class Variant:
    """One Vision Transformer, plain or on a ResNet.

    Args:
        name: name of its public builder.
        patch_size: side of a square patch, in pixels; in a hybrid, of the feature map.
        embedding_dim: width of a token.
        depth: number of Transformer blocks.
        num_heads: attention heads of a block.
        mlp_dim: hidden width of a block's MLP.
        resnet_stages: residual units per stage of a hybrid's ResNet.
        gated_mlp: whether the MLPs are gated (SwiGLU).
        resnet_width: channels of the first convolution of a hybrid's ResNet.
    """

    name: str
    patch_size: int
    embedding_dim: int
    depth: int
    num_heads: int
    mlp_dim: int
    resnet_stages: tuple[int, ...] | None = None
    gated_mlp: bool = False
    resnet_width: int = 64

    @property
    def architecture(self):
        """Arguments of `vision_transformer` that build it."""
        return {name: value for name, value in vars(self).items() if name != "name"}


@dataclasses.dataclass(frozen=True)
class ResNetVariant:
    """One ResNet of BiT.

    Args:
        name: name of its public builder.
        stages: residual units of each stage.
        width: channels of the first convolution.
    """

    name: str
    stages: tuple[int, ...]
    width: int

    @property
    def architecture(self):
        """Arguments of `resnet` that build it."""
        return {"stages": self.stages, "width": self.width, "preactivation": True}


# B, L, H: table 1 of the ViT paper (arXiv 2010.11929). Ti, S: DeiT's sizes, as in AugReg
# (arXiv 2106.10270). g, G: Scaling Vision Transformers (arXiv 2106.04560). So400m: SoViT
# (arXiv 2305.13035). The sizes agree with `big_vision/models/vit.py`.
VARIANTS = (
    Variant("ViT_Ti16", 16, 192, 12, 3, 768),
    Variant("ViT_S32", 32, 384, 12, 6, 1536),
    Variant("ViT_S16", 16, 384, 12, 6, 1536),
    Variant("ViT_B32", 32, 768, 12, 12, 3072),
    Variant("ViT_B16", 16, 768, 12, 12, 3072),
    Variant("ViT_B8", 8, 768, 12, 12, 3072),
    Variant("ViT_L32", 32, 1024, 24, 16, 4096),
    Variant("ViT_L16", 16, 1024, 24, 16, 4096),
    Variant("ViT_So400m14", 14, 1152, 27, 16, 4304),
    Variant("ViT_H14", 14, 1280, 32, 16, 5120),
    Variant("ViT_g14", 14, 1408, 40, 16, 6144),
    Variant("ViT_G14", 14, 1664, 48, 16, 8192),
    # DINOv2 (arXiv 2304.07193) and CLIP (arXiv 2103.00020); giant14 is DINOv2's ViT-g/14.
    Variant("ViT_S14", 14, 384, 12, 6, 1536),
    Variant("ViT_B14", 14, 768, 12, 12, 3072),
    Variant("ViT_L14", 14, 1024, 24, 16, 4096),
    Variant("ViT_giant14", 14, 1536, 40, 24, 4096, gated_mlp=True),
    # SigLIP 2 (arXiv 2502.14786).
    Variant("ViT_So400m16", 16, 1152, 27, 16, 4304),
    Variant("ViT_giantopt16", 16, 1536, 40, 16, 6144),
    # DINOv3 (arXiv 2508.10104), whose other models have the sizes of S16, B16 and L16.
    Variant("ViT_Splus16", 16, 384, 12, 6, 1536, gated_mlp=True),
    Variant("ViT_Hplus16", 16, 1280, 32, 20, 5120, gated_mlp=True),
    Variant("ViT_7B16", 16, 4096, 40, 32, 8192, gated_mlp=True),
    # Hybrids. Section 3.1 of the ViT paper: B and L on the last stage of a ResNet-50 (32), or on
    # its third stage with the units of the fourth added (16). The others are AugReg's, from
    # `vit_jax/configs/models.py`; R_Ti16 has only the root, and one token stands for 32 pixels.
    Variant("R_Ti16", 8, 192, 12, 3, 768, ()),
    Variant("R26_S32", 1, 384, 12, 6, 1536, (2, 2, 2, 2)),
    Variant("R50_B32", 1, 768, 12, 12, 3072, (3, 4, 6, 3)),
    Variant("R50_B16", 1, 768, 12, 12, 3072, (3, 4, 9)),
    Variant("R50_L32", 1, 1024, 24, 16, 4096, (3, 4, 6, 3)),
    Variant("R50_L16", 1, 1024, 24, 16, 4096, (3, 4, 9)),
    # BiT (arXiv 1912.11370), and its other sizes in the ViT paper.
    ResNetVariant("BiT_R50x1", (3, 4, 6, 3), 64),
    ResNetVariant("BiT_R50x2", (3, 4, 6, 3), 128),
    ResNetVariant("BiT_R50x3", (3, 4, 6, 3), 192),
    ResNetVariant("BiT_R101x1", (3, 4, 23, 3), 64),
    ResNetVariant("BiT_R101x3", (3, 4, 23, 3), 192),
    ResNetVariant("BiT_R152x1", (3, 8, 36, 3), 64),
    ResNetVariant("BiT_R152x2", (3, 8, 36, 3), 128),
    ResNetVariant("BiT_R152x4", (3, 8, 36, 3), 256),
    ResNetVariant("BiT_R200x3", (3, 24, 36, 3), 192),
)


def list_variants() -> tuple[Variant | ResNetVariant, ...]:
    """Return the table of architectures.

    Returns:
        A tuple of rows: plain Vision Transformers by width and then by sequence length, those of
        later papers, hybrids (all `Variant`), and BiT ResNets (`ResNetVariant`).

    Example:
    >>> [row.name for row in keras_vit.list_variants()][:3]
    ['ViT_Ti16', 'ViT_S32', 'ViT_S16']
    """
    return VARIANTS


def find_variant(name: str) -> Variant | ResNetVariant:
    """Return the row of a name; the error names the nearest.

    Arguments in parentheses after the name change its sizes, as in Python.

    Example:
    >>> find_variant("ViT_Ti16").depth, find_variant("ViT_Ti16(patch_size=4, depth=6)").depth
    (12, 6)
    """
    known, parenthesis, _ = str(name).partition("(")
    for variant in VARIANTS:
        if variant.name == known:
            return _changed(variant, name) if parenthesis else variant
    raise ValueError(
        f"`variant` must be the name of an architecture, such as {nearest_variants(name)}. "
        f"Received: variant={name!r}"
    )


def nearest_variants(name):
    """Return the three names that are most similar to one, as a text."""
    names = sorted(
        (variant.name for variant in VARIANTS),
        key=lambda known: difflib.SequenceMatcher(None, known.lower(), str(name).lower()).ratio(),
        reverse=True,
    )
    return ", ".join(names[:3])


def is_variant(model):
    """Return whether a string is the name of a variant, even if a path has the same name."""
    name = model.partition("(")[0] if isinstance(model, str) else None
    return any(variant.name == name for variant in VARIANTS)


def is_variant_or_mistyped(model):
    """Return whether a string is the name of a variant, or a word that is no path either."""
    is_word = re.fullmatch(r"\w+(\(.*\))?", str(model))
    return is_variant(model) or bool(is_word and not exists(model))


def builder_name(variant):
    """Return the name of a row without the changes in parentheses."""
    return variant.name.partition("(")[0]


def with_sizes(variant, changes):
    """Return a row with other sizes, a dictionary; its name has them in parentheses."""
    changed = dataclasses.replace(variant, **changes)
    table_row = find_variant(builder_name(variant))
    sizes = {name: value for name, value in vars(changed).items() if name != "name"}
    different = {name for name in sizes if sizes[name] != getattr(table_row, name)}
    listed = ", ".join(f"{name}={sizes[name]!r}" for name in sorted(different))
    name = f"{table_row.name}({listed})" if different else table_row.name
    return dataclasses.replace(changed, name=name)


def _changed(variant, text):
    """Return a row with the sizes that a text such as `"ViT_Ti16(depth=6)"` names."""
    try:
        call = ast.parse(text, mode="eval").body
        changes = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        if len(changes) < len(call.keywords):
            raise ValueError(text)
        is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args
        _check_sizes(variant, changes if is_call else {})
    except (AttributeError, SyntaxError, ValueError) as error:
        sizes = ", ".join(field.name for field in dataclasses.fields(variant)[1:])
        raise ValueError(
            f"A variant's sizes must be whole numbers or tuples of them in parentheses, such as "
            f"'ViT_Ti16(patch_size=4, depth=6)'; {variant.name} has {sizes}. "
            f"Received: variant={text!r}"
        ) from error
    return with_sizes(variant, changes)


def _check_sizes(variant, changes):
    """Raise `ValueError` unless there are changes, each of a size and of its kind."""
    names = {field.name for field in dataclasses.fields(variant)} - {"name"}
    for name, value in changes.items():
        units = value if name.endswith("stages") and isinstance(value, tuple) else (value,)
        are_sizes = all(is_integer(unit) and unit > 0 for unit in units)
        is_right = isinstance(value, bool) if name == "gated_mlp" else are_sizes
        if name not in names or not is_right:
            raise ValueError(name)
    if not changes:
        raise ValueError(variant.name)


def is_resnet(options):
    """Return whether options are those of `resnet`."""
    return "stages" in options


def token_grid_of(options):
    """Return `(rows, columns)` of the patches, or `None` for a ResNet."""
    if is_resnet(options):
        return None
    stride = total_stride(options["patch_size"], options.get("resnet_stages"))
    return grid_size(options["image_size"], stride)


def total_stride(patch_size, resnet_stages=None):
    """Return height and width of the part of an image that one token represents."""
    factor = 1 if resnet_stages is None else downsampling(resnet_stages)
    return tuple(factor * size for size in as_pair(patch_size, "patch_size"))


def downsampling(stages):
    """Return the stride of the feature map after these stages, in pixels of the image."""
    return 4 * 2 ** max(len(stages) - 1, 0)
