"""The stored inputs and outputs of the original implementations (tests/data/reference)."""

import json
import pathlib
import re

import numpy as np

from keras_vit.models import vision_transformer

DATA = pathlib.Path(__file__).parent / "data"
REFERENCE = DATA / "reference"

# Float32 noise of the references is 5e-6 in the logits; a wrong GELU moves them by 1e-4 and more.
LOGITS_TOLERANCE = 5e-5
INTERMEDIATE_TOLERANCE = 1e-4

NAMES = [
    (r"^params/", ""),
    (r"^Transformer/", ""),
    (r"^posembed_input/|^(?=pos_embedding)", "position_embedding/"),
    (r"pos_embedding$", "embedding"),
    (r"^embedding/", "patch_embedding/projection/"),
    (r"^cls$", "class_token/token"),
    (r"^encoderblock_", "block_"),
    (r"^MAPHead_0/LayerNorm_0/", "pooling/layer_norm/"),
    (r"^MAPHead_0/", "pooling/"),
    (r"LayerNorm_0/", "layer_norm_1/"),
    (r"LayerNorm_[12]/", "layer_norm_2/"),
    (r"MultiHeadDotProductAttention_\d/", "attention/"),
    (r"attention/out/", "attention/output/"),
    (r"MlpBlock_\d/Dense_", "mlp/dense_"),
    (r"((?:norm|norm_1|norm_2)/)scale$", r"\1gamma"),
    (r"((?:norm|norm_1|norm_2)/)bias$", r"\1beta"),
]


def load_case(name):
    """The configuration, the weights and the inputs and outputs of a case."""
    config = json.loads((REFERENCE / f"{name}.json").read_text())
    return config, read_npz(f"{name}.ckpt.npz"), read_npz(f"{name}.io.npz")


def read_npz(name):
    with np.load(REFERENCE / name, allow_pickle=False) as arrays:
        return dict(arrays)


def case_options(config):
    """The arguments of `vision_transformer` for a case of either original repository."""
    # big_vision nests the architecture and has its own names for it.
    model = {**config, **config.get("config", {})}
    return {
        "patch_size": tuple(model["patch_size"]),
        "embedding_dim": model.get("hidden_size") or model["width"],
        "depth": model.get("num_layers") or model["depth"],
        "num_heads": model["num_heads"],
        "mlp_dim": model["mlp_dim"],
        "num_classes": model["num_classes"],
        "image_size": tuple(model["image_size"]),
        "pooling": model.get("classifier") or model["pool_type"],
        "representation_size": model.get("representation_size"),
    }


def build_case(config, weights, **options):
    """The model of a case with the stored weights put in, every one of them."""
    model = vision_transformer(**{**case_options(config), **options})
    variables = {variable.path: variable for variable in model.weights}
    renamed = {rename(name): array for name, array in weights.items()}
    assert sorted(renamed) == sorted(variables)
    for path, variable in variables.items():
        variable.assign(renamed[path])
    return model


def rename(name):
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def assert_intermediate(actual, expected):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=INTERMEDIATE_TOLERANCE * scale)
