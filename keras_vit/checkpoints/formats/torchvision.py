"""The layout of torchvision's `VisionTransformer`."""

from keras_vit.checkpoints.architecture import not_square, output_size, torch_options
from keras_vit.checkpoints.configuration import IMAGENET
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.weight_map import (
    POSITIONS,
    Row,
    finder,
    packed,
    renamer,
    torch_layer,
    torch_norm,
)
from keras_vit.core.image_spec import ImageSpec
from keras_vit.models.options import VitOptions

LAYER = "encoder.layers.encoder_layer_{i}"
TORCHVISION_ROWS = (
    *torch_layer("conv_proj.", "patch_embedding/projection", "convolution"),
    Row("class_token", "class_token/token"),
    Row("encoder.pos_embedding", POSITIONS, "positions"),
    *torch_norm(f"{LAYER}.ln_1.", "block_{i}/layer_norm_1"),
    *packed(f"{LAYER}.self_attention.in_proj_", "block_{i}/attention"),
    *torch_layer(f"{LAYER}.self_attention.out_proj.", "block_{i}/attention/output"),
    *torch_norm(f"{LAYER}.ln_2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{LAYER}.mlp.0.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{LAYER}.mlp.3.", "block_{i}/mlp/dense_1"),
    *torch_norm("encoder.ln.", "encoder_norm"),
    *torch_layer("heads.pre_logits.", "pre_logits"),
    *torch_layer("heads.head.", "head"),
)
# Patterns of other names, and the names in the weight map: MLPs of older versions, and `heads`
# replaced by one `Linear` layer.
RENAME = renamer(
    [
        (r"\.mlp\.linear_1\.", ".mlp.0."),
        (r"\.mlp\.linear_2\.", ".mlp.3."),
        (r"^heads\.(weight|bias)$", r"heads.head.\1"),
    ]
)


def _describe(shape_of, config, num_heads):
    return VitOptions(
        **torch_options(shape_of, None, num_heads),
        image_size=None,
        representation_size=output_size(shape_of, "pre_logits", axis=0),
        pooling="token",
        class_token=True,
        activation="gelu",
        epsilon=1e-6,
    )


TORCHVISION = Format(
    "torchvision",
    TORCHVISION_ROWS,
    "`torchvision`: `.safetensors`, `.pth`",
    ".safetensors",
    finder(["conv_proj.weight", "class_token", "encoder.pos_embedding"], ("",), rename=RENAME),
    _describe,
    models=("`VisionTransformer`",),
    config_options=("num_heads",),
    # The defaults of torchvision's preset `ImageClassification`. All published weights have this
    # normalization.
    image_spec=ImageSpec(
        antialias=True,
        crop_share=224 / 256,
        keeps_aspect_ratio=True,
        rounds_offset=True,
        mean=IMAGENET[0],
        deviation=IMAGENET[1],
    ),
    # torchvision resizes position embeddings bicubically with aligned corners, which this package
    # does not have.
    interpolation="bilinear",
    refused=not_square,
)
