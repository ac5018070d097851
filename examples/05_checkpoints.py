"""Load a checkpoint, fine-tune it on other classes at another size, and write it in a layout.

Usage: python examples/05_checkpoints.py [CHECKPOINT]

CHECKPOINT is a name such as ViT_S16/augreg_imagenet21k (see `keras-vit checkpoints`), or a file.
By default a small file with random weights is written and used.
"""

import pathlib
import sys
import tempfile

import keras
import numpy as np

import keras_vit


def write_small_file(folder):
    """Write a small model to a file in Google's layout."""
    model = keras_vit.vision_transformer(
        patch_size=8, embedding_dim=48, depth=2, num_heads=4, mlp_dim=96, image_size=32
    )
    path = folder / "small.npz"
    keras_vit.save_checkpoint(model, path, format="google")
    return path


def main():
    """Load, fine-tune on digits, write and read back."""
    folder = pathlib.Path(tempfile.mkdtemp())
    source = sys.argv[1] if len(sys.argv) > 1 else write_small_file(folder)

    # A new head for ten classes, zero at the start; position embeddings resized for 48 x 48 pixels.
    model = keras_vit.from_checkpoint(source, num_classes=10, image_size=48)

    train = keras_vit.data.load("digits", "train", 48, batch_size=64, training=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.03, momentum=0.9, global_clipnorm=1.0)
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(train, epochs=1, shuffle=False, verbose=2)

    # For Hugging Face transformers; or `timm`, `google`, `big_vision`.
    keras_vit.save_checkpoint(model, folder / "digits", format="huggingface")
    again = keras_vit.from_checkpoint(folder / "digits")
    images = next(iter(train))[0].numpy()
    same = np.allclose(
        model.predict(images, verbose=0), again.predict(images, verbose=0), atol=1e-5
    )
    print(f"written to {folder / 'digits'}, same logits: {same}")


if __name__ == "__main__":
    main()
