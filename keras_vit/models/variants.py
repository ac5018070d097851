"""THE table of architectures. Nothing here but what the weights' shapes say."""

import dataclasses
import difflib


@dataclasses.dataclass(frozen=True)
class Variant:
    """One architecture of the ViT family.

    Args:
        name: name of its public builder.
        patch_size: side of a square patch, in pixels.
        embedding_dim: width of a token.
        depth: number of Transformer blocks.
        num_heads: attention heads of a block.
        mlp_dim: hidden width of a block's MLP.
    """

    name: str
    patch_size: int
    embedding_dim: int
    depth: int
    num_heads: int
    mlp_dim: int

    @property
    def architecture(self):
        """The arguments of `vision_transformer` that build it."""
        fields = dataclasses.asdict(self)
        del fields["name"]
        return fields


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
)


def list_variants():
    """The table of architectures.

    Returns:
        A tuple of `Variant` rows, by width and then by patch size, the largest patch first.

    Example:
    >>> keras_vit.list_variants()[0]
    Variant(name='ViT_Ti16', patch_size=16, embedding_dim=192, depth=12, num_heads=3, mlp_dim=768)
    """
    return VARIANTS


def match_variant(options):
    """The row with the architecture of these options, or `None`.

    Args:
        options: of `vision_transformer`.
    """
    patch_size = options["patch_size"]
    for row in VARIANTS:
        same = all(
            options[name] == value
            for name, value in row.architecture.items()
            if name != "patch_size"
        )
        if same and patch_size in (row.patch_size, (row.patch_size, row.patch_size)):
            return row
    return None


def find_variant(name):
    """The row of that name.

    Raises:
        ValueError: if there is none; the message names the nearest.
    """
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    nearest = sorted(
        (variant.name for variant in VARIANTS),
        key=lambda known: difflib.SequenceMatcher(None, known.lower(), str(name).lower()).ratio(),
        reverse=True,
    )[:3]
    raise ValueError(
        f"`variant` must be the name of an architecture, such as {', '.join(nearest)}. "
        f"Received: variant={name!r}"
    )
