"""The public names, for type checkers."""

from .base import ImageModel as ImageModel
from .options import architecture_differences as architecture_differences
from .options import match_variant as match_variant
from .positions import resize_patch_kernel as resize_patch_kernel
from .positions import resize_position_embedding as resize_position_embedding
from .prediction import features as features
from .resnet import resnet as resnet
from .surgery import freeze_blocks as freeze_blocks
from .surgery import replace_head as replace_head
from .surgery import resize as resize
from .variants import VARIANTS as VARIANTS
from .variants import ResNetVariant as ResNetVariant
from .variants import Variant as Variant
from .variants import find_variant as find_variant
from .variants import list_variants as list_variants
from .vit import vision_transformer as vision_transformer
