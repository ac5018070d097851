"""Fine-tune low-rank matrices (LoRA) on an int8 model, and save them in a small file.

python examples/07_lora.py
"""

import tempfile

import keras
import numpy as np

import keras_vit


def load(split):
    data = keras_vit.data.load("digits", split, image_size=(32, 32), batch_size=512)
    return tuple(np.concatenate(parts) for parts in zip(*data.as_numpy_iterator(), strict=True))


def build():
    """Build an int8 model; in practice with `weights="augreg_imagenet21k"` or other weights."""
    keras.utils.set_random_seed(0)
    model = keras_vit.vision_transformer(8, 64, 2, 4, 128, num_classes=10, image_size=32)
    return keras_vit.quantize(model, "int8")


def main(folder, epochs=3):
    model = build()
    model = keras_vit.enable_lora(
        model, rank=8, alpha=16, layers=("query", "value", "dense_0", "dense_1")
    )
    model.compile(
        keras.optimizers.AdamW(3e-3, weight_decay=0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(*load("train"), batch_size=64, epochs=epochs, verbose=2)

    keras_vit.save_adapter(model, f"{folder}/digits.safetensors")
    other = build()
    other = keras_vit.enable_lora(
        other, rank=8, alpha=16, layers=("query", "value", "dense_0", "dense_1")
    )
    keras_vit.load_adapter(other, f"{folder}/digits.safetensors")

    images, labels = load("validation")
    merged = keras_vit.merge_lora(other)
    for name, tuned in {"int8 and LoRA": other, "merged, float32": merged}.items():
        accuracy = np.mean(tuned.predict(images, verbose=0).argmax(-1) == labels)
        print(f"{name}: {accuracy:.1%}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
