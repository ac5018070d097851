"""The public builders, for type checkers."""

import os
from typing import Any, Protocol

from .models.image_model import ImageModel

class Builder(Protocol):
    """The type of the builders."""

    def __call__(
        self,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        weights: str | os.PathLike | None = None,
        **options: Any,
    ) -> ImageModel: ...

def build(
    variant: str,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    weights: str | os.PathLike | None = None,
    **options: Any,
) -> ImageModel: ...

ViT_Ti16: Builder
ViT_S32: Builder
ViT_S16: Builder
ViT_B32: Builder
ViT_B16: Builder
ViT_B8: Builder
ViT_L32: Builder
ViT_L16: Builder
ViT_So400m14: Builder
ViT_H14: Builder
ViT_g14: Builder
ViT_G14: Builder
ViT_S14: Builder
ViT_B14: Builder
ViT_L14: Builder
ViT_giant14: Builder
ViT_So400m16: Builder
ViT_giantopt16: Builder
ViT_Splus16: Builder
ViT_Hplus16: Builder
ViT_7B16: Builder
R_Ti16: Builder
R26_S32: Builder
R50_B32: Builder
R50_B16: Builder
R50_L32: Builder
R50_L16: Builder
BiT_R50x1: Builder
BiT_R50x2: Builder
BiT_R50x3: Builder
BiT_R101x1: Builder
BiT_R101x3: Builder
BiT_R152x1: Builder
BiT_R152x2: Builder
BiT_R152x4: Builder
BiT_R200x3: Builder
