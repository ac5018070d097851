"""Compose the layers by hand, look at attention scores, and resize the result.

python examples/02_compose_layers.py
"""

import keras
import numpy as np

import keras_vit


def build(image_size=32, patch_size=8, width=64, depth=3, num_classes=10):
    images = keras.Input((image_size, image_size, 3))
    tokens = keras_vit.PatchEmbedding(width, patch_size)(images)
    tokens = keras_vit.ClassToken()(tokens)
    tokens = keras_vit.AddPositionEmbedding(name="position_embedding")(tokens)
    for index in range(depth):
        block = keras_vit.TransformerBlock(num_heads=4, mlp_dim=2 * width, name=f"block_{index}")
        tokens = block(tokens)
    tokens = keras.layers.LayerNormalization(epsilon=1e-6)(tokens)
    logits = keras.layers.Dense(num_classes, kernel_initializer="zeros", name="head")(tokens[:, 0])
    return keras.Model(images, logits)


def main():
    model = build()
    model.summary()
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")

    tokens = keras_vit.features(model, images, layers=["position_embedding"])["position_embedding"]
    _, scores = model.get_layer("block_0")(tokens, return_attention_scores=True)
    print("Attention scores (batch, heads, tokens, tokens):", tuple(scores.shape))

    larger = keras_vit.resize(model, 64)
    print("Logits at twice the resolution:", larger.predict(np.zeros((1, 64, 64, 3))).shape)


if __name__ == "__main__":
    main()
