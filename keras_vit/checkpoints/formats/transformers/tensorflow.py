"""The layout of the TensorFlow ViT in transformers before version 5: `tf_model.h5`.

`save_pretrained(..., safe_serialization=True)` wrote the same arrays to `model.safetensors`.
"""

import dataclasses
import re

from keras_vit.checkpoints.configuration import TF_MODEL
from keras_vit.checkpoints.formats.transformers.common import not_square
from keras_vit.checkpoints.formats.transformers.vit import HUGGINGFACE, HUGGINGFACE_ROWS
from keras_vit.checkpoints.weight_map import Naming, Row

MODEL_NAMES = {True: "tf_vi_t_for_image_classification", False: "tf_vi_t_model"}
LAYER = "encoder/layer_._{i}/"
MARKER = "embeddings/patch_embeddings/projection/kernel"
# Prefix of each name in HDF5 files: the group of the layer and the name of the model, with a number
# if the program had built other models before.
GROUP = re.compile(r"^(?!vit/(embeddings|encoder|layernorm|pooler)/)[^/]+/[^/]+/")


def _tensorflow_row(row):
    """Return a row for the same variable, with TensorFlow's names of kernels and norms."""
    *layers, name = row.source.removeprefix("encoder.layer.{i}.").split(".")
    is_norm = any(layer.startswith("layernorm") for layer in layers)
    names = {"weight": "gamma", "bias": "beta"} if is_norm else {"weight": "kernel"}
    block = LAYER if row.source.startswith("encoder.") else ""
    source = block + "/".join([*layers, names.get(name, name)])
    # The axes of kernels have the same order as in Keras.
    is_kernel = row.transform in ("convolution", "dense")
    return Row(source, row.target, "identity" if is_kernel else row.transform)


# Names without the prefix of layer and model, and without the suffix `:0`.
HUGGINGFACE_TF_ROWS = tuple(map(_tensorflow_row, HUGGINGFACE_ROWS))


def find_huggingface_tf(shapes):
    """Return the `Naming` of transformers' TensorFlow ViT, or `None`; see `Format.find`."""
    # A file of ViT-MAE has the same arrays, and in addition the arrays of a decoder.
    is_vit = MARKER in map(_name_in_map, shapes) and not any("decoder/" in name for name in shapes)
    return Naming.of(shapes, _name_in_map) if is_vit else None


def _name_in_map(name):
    """Return the name in the weight map of an array, given its name in the file."""
    path = name.removesuffix(":0")
    if not path.startswith("classifier/") or path.count("/") > 1:
        path = GROUP.sub("", path, count=1)
    return path.removeprefix("vit/")


def describe_huggingface_tf(shape_of, config, num_heads):
    """Return the options of a TensorFlow ViT; see `Format.describe`."""

    def torch_shape_of(path):
        shape = shape_of(path)
        if shape is None or not path.endswith("/kernel"):
            return shape
        return shape[::-1] if len(shape) == 2 else (shape[3], shape[2], *shape[:2])

    # The TensorFlow layers of transformers ignore `qkv_bias`, and always have biases.
    config = {name: value for name, value in config.items() if name != "qkv_bias"}
    return HUGGINGFACE.describe(torch_shape_of, config, num_heads).replace(qkv_bias=True)


def _written_name(name, options):
    """Return the name in the file for a name in the weight map; see `Format.written_name`."""
    layer = "classifier" if name.startswith("classifier/") else "vit"
    path = name if layer == "classifier" else f"vit/{name}"
    return f"{layer}/{MODEL_NAMES[bool(options.num_classes)]}/{path}:0"


def _configure(options, *metadata):
    """Return the contents of the JSON files; in TensorFlow, only `gelu_new` is the tanh GELU."""
    files = HUGGINGFACE.configure(options, *metadata)
    if options.activation == "gelu_tanh":
        files["config.json"]["hidden_act"] = "gelu_new"
    return files


HUGGINGFACE_TF = dataclasses.replace(
    HUGGINGFACE,
    name="huggingface_tf",
    rows=HUGGINGFACE_TF_ROWS,
    title="`huggingface_tf`: `tf_model.h5`, all under their layer and the name of the model",
    suffix=".h5",
    find=find_huggingface_tf,
    describe=describe_huggingface_tf,
    models=("TFViTModel", "TFViTForImageClassification"),
    read_only_models=(),
    written_name=_written_name,
    file_name=TF_MODEL,
    configure=_configure,
    refused=lambda options: [name for name in not_square(options) if name == "image_size"],
)
