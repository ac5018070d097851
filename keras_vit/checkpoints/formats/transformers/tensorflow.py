"""The layouts of TensorFlow models in transformers before version 5: `tf_model.h5`.

`save_pretrained(..., safe_serialization=True)` wrote the same arrays to `model.safetensors`.
"""

import functools

from keras_vit.checkpoints.architecture import not_square
from keras_vit.checkpoints.configuration import TF_MODEL
from keras_vit.checkpoints.formats.transformers.deit import HUGGINGFACE_DEIT
from keras_vit.checkpoints.formats.transformers.vit import HUGGINGFACE, VIT_MAE
from keras_vit.checkpoints.weight_map import Row, finder, renamer

MODEL_NAMES = {True: "tf_vi_t_for_image_classification", False: "tf_vi_t_model"}
LAYER = "encoder/layer_._{i}/"
MARKER = "embeddings/patch_embeddings/projection/kernel"
TOKEN = "embeddings/distillation_token"
# Returns the name in the weight map of an array, given its name in the file.
RENAME = renamer(
    [
        (":0$", ""),
        # Prefix of each name in HDF5 files: the group of the layer and the name of the model, with
        # a number if the program had built other models before.
        (r"^(?!decoder/|(vit|deit)/(embeddings|encoder|layernorm|pooler)/)[^/]+/[^/]+/", ""),
        ("^(vit|deit)/", ""),
    ]
)


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


def _describe(layout, shape_of, config, num_heads):
    """Return the options of a TensorFlow model, given the layout of its arrays in PyTorch."""

    def torch_shape_of(path):
        shape = shape_of(path)
        if shape is None or not path.endswith("/kernel"):
            return shape
        return shape[::-1] if len(shape) == 2 else (shape[3], shape[2], *shape[:2])

    # The TensorFlow layers of transformers ignore `qkv_bias`, and always have biases.
    config = {name: value for name, value in config.items() if name != "qkv_bias"}
    return layout.describe(torch_shape_of, config, num_heads).replace(qkv_bias=True)


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


def _layout(layout, find, read_only_models, **fields):
    """Return the `Format` of a model, given its `Format` in PyTorch; it is only read by default."""
    return layout.read_only(
        layout.name.replace("huggingface", "huggingface_tf"),
        find,
        read_only_models,
        # Names without the prefix of layer and model, and without the suffix `:0`.
        rows=tuple(map(_tensorflow_row, layout.rows)),
        describe=functools.partial(_describe, layout),
        file_name=TF_MODEL,
        **fields,
    )


# A file of ViT-MAE has the same arrays as a file of ViT, and may have those of a decoder.
_find_vit = finder([MARKER], ("",), "decoder/", absent=[TOKEN], rename=RENAME)
_find_deit = finder([MARKER, TOKEN], ("",), "decoder/|embeddings/mask_token$", rename=RENAME)

HUGGINGFACE_TF = _layout(
    HUGGINGFACE,
    _find_vit,
    (),
    title="`huggingface_tf`: `tf_model.h5`, all under their layer and the name of the model",
    suffix=".h5",
    models=("TFViTModel", "TFViTForImageClassification"),
    written_name=_written_name,
    configure=_configure,
    refused=lambda options: [name for name in not_square(options) if name == "image_size"],
)
VIT_MAE_TF = _layout(VIT_MAE, _find_vit, ("TFViTMAEModel", "TFViTMAEForPreTraining"))
DEIT_TF = _layout(
    HUGGINGFACE_DEIT, _find_deit, tuple(f"TF{name}" for name in HUGGINGFACE_DEIT.models)
)
