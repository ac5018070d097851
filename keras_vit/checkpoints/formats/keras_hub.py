"""The weight map of keras-hub's ViT, for `from_keras_hub` and `to_keras_hub`."""

from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.weight_map import POSITIONS, QUERY_KEY_VALUE, Row, attention, layer, norm

BLOCK = "vit_encoder/transformer_block_{n}"
GAMMA = ("gamma", "beta")

KERAS_HUB_ROWS = (
    *layer("vit_patching_and_embedding/patch_embedding/", "patch_embedding/projection"),
    Row("vit_patching_and_embedding/class_token", "class_token/token"),
    Row("vit_patching_and_embedding/position_embedding/embeddings", POSITIONS, "unbatched"),
    *norm(f"{BLOCK}/ln_1/", "block_{i}/layer_norm_1", GAMMA),
    *attention(f"{BLOCK}/mha/", "block_{i}/attention", (*QUERY_KEY_VALUE, "attention_output")),
    *norm(f"{BLOCK}/ln_2/", "block_{i}/layer_norm_2", GAMMA),
    *layer(f"{BLOCK}/mlp/dense_1/", "block_{i}/mlp/dense_0"),
    *layer(f"{BLOCK}/mlp/dense_2/", "block_{i}/mlp/dense_1"),
    *norm("vit_encoder/ln/", "encoder_norm", GAMMA),
    *layer("pre_logits/", "pre_logits"),
    *layer("predictions/", "head"),
)

KERAS_HUB = Format("keras_hub", KERAS_HUB_ROWS, "keras-hub, in memory")
