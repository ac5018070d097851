"""Export a model and call the SavedModel as TF Serving does: encoded images in, labels out.

    python examples/04_serve.py

With TF Serving running on the exported directory, the same request is

    curl -d '{"instances": [{"image_bytes": {"b64": "'$(base64 -w0 cat.jpg)'"}}]}' \
        http://localhost:8501/v1/models/pets:predict
"""

import tempfile

import numpy as np
import tensorflow as tf

import keras_vit


def main():
    class_names = ["cat", "dog"]
    model = keras_vit.ViT_Ti16(num_classes=2, image_size=64)
    # This replaces training: the kernel of a new head is zero.
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(192, 2)))
    with tempfile.TemporaryDirectory() as directory:
        path = keras_vit.export(model, f"{directory}/pets", class_names=class_names)
        served = tf.saved_model.load(path)

        pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3)).astype("uint8")
        files = [tf.io.encode_jpeg(pixels).numpy(), tf.io.encode_png(pixels).numpy()]
        answer = served.signatures["serving_default"](image_bytes=tf.constant(files))
    for probabilities in answer["probabilities"].numpy():
        print(dict(zip(class_names, probabilities.round(3).tolist(), strict=True)))


if __name__ == "__main__":
    main()
