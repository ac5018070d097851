"""Convert a model that you trained with vit-keras; needs `pip install vit-keras`.

The weights are written to a file in the original's layout, which `from_checkpoint` reads.
"""

import numpy as np
from vit_keras import vit

import keras_vit

DENSE, NORM = ("kernel", "bias"), ("scale", "bias")


def google_arrays(model):
    """Return the arrays of a vit-keras model under the names of the original's files."""
    arrays = {}

    def add(name, layer, kinds, shapes=(None, None)):
        for kind, value, shape in zip(kinds, layer.get_weights(), shapes, strict=False):
            arrays[f"{name}/{kind}"] = value if shape is None else value.reshape(shape)

    for layer in model.layers:
        name = layer.name.replace("Transformer_", "Transformer/")
        if name == "class_token":
            (arrays["cls"],) = layer.get_weights()
        elif name.endswith("posembed_input"):
            add(name, layer, ["pos_embedding"])
        elif name.endswith("encoder_norm"):
            add(name, layer, NORM)
        elif "encoderblock" in name:
            width, heads = layer.att.hidden_size, layer.num_heads
            attention = f"{name}/MultiHeadDotProductAttention_1"
            for part in ("query", "key", "value"):
                projection = getattr(layer.att, f"{part}_dense")
                add(f"{attention}/{part}", projection, DENSE, ((width, heads, -1), (heads, -1)))
            add(f"{attention}/out", layer.att.combine_heads, DENSE, ((heads, -1, width), None))
            add(f"{name}/LayerNorm_0", layer.layernorm1, NORM)
            add(f"{name}/LayerNorm_2", layer.layernorm2, NORM)
            first, _, _, second, _ = layer.mlpblock.layers
            add(f"{name}/MlpBlock_3/Dense_0", first, DENSE)
            add(f"{name}/MlpBlock_3/Dense_1", second, DENSE)
        elif name in ("embedding", "pre_logits", "head"):
            add(name, layer, DENSE)
        elif layer.weights:
            raise ValueError(f"Give the model of vit-keras alone. Received: a model with {name}")
    return arrays


if __name__ == "__main__":
    # Replace this by the call in your training, followed by `old.load_weights(...)`.
    old = vit.vit_b32(image_size=64, classes=5, pretrained=False, pretrained_top=False)
    np.savez("from_vit_keras.npz", **google_arrays(old))
    # For images that are not square, add `image_size=(height, width)`.
    model = keras_vit.from_checkpoint("from_vit_keras.npz", activation="gelu")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 64, 64, 3)).astype("float32")
    np.testing.assert_allclose(model.predict(images), old.predict(images), atol=1e-4)
