"""The paper's three families at toy size: a Vision Transformer, a hybrid and a BiT ResNet.

    python examples/06_three_families.py

Each trains for a few epochs on the digits that scikit-learn ships. The paper asks which family is
best at equal compute (figure 5); at this size the answer differs from that for 300 million images.
"""

import keras

import keras_vit

SIZE, EPOCHS = 24, 3
TRANSFORMER = {"embedding_dim": 64, "depth": 2, "num_heads": 4, "mlp_dim": 128}


def make_models():
    """Build the three models for ten classes."""
    shared = {"num_classes": 10, "image_size": SIZE}
    return {
        "ViT, patches of 8 pixels": keras_vit.vision_transformer(8, **TRANSFORMER, **shared),
        # The ResNet's maps have a stride of 8; each of their pixels is a token.
        "hybrid, patches of its maps": keras_vit.vision_transformer(
            1, **TRANSFORMER, resnet_stages=(1, 1), resnet_width=32, **shared
        ),
        "BiT ResNet": keras_vit.resnet(stages=(1, 1, 1), width=32, **shared),
    }


def main():
    """Train each model and print its accuracy."""
    keras.utils.set_random_seed(0)
    train, test = (
        keras_vit.data.load("digits", split, SIZE, batch_size=32, training=split == "train")
        for split in ("train", "test")
    )
    for name, model in make_models().items():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(1e-3), loss, metrics=["accuracy"])
        model.fit(train, epochs=EPOCHS, shuffle=False, verbose=0)
        _, accuracy = model.evaluate(test, verbose=0)
        print(f"{name:28} {model.count_params():9,} parameters  accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
