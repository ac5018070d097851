"""The stored inputs and outputs of the original implementations (tests/data/reference)."""

import pathlib

import numpy as np

from keras_vit.checkpoints import from_checkpoint

DATA = pathlib.Path(__file__).parent / "data"
REFERENCE = DATA / "reference"

# Float32 noise of the references is 5e-6 in the logits; a wrong GELU moves them by 1e-4 and more.
LOGITS_TOLERANCE = 5e-5
INTERMEDIATE_TOLERANCE = 1e-4

# File of each case, and what the file cannot say: heads that are not 64 wide without a config.json,
# and the image size of a ResNet.
FILES = {
    "timm_token": ("timm_token.safetensors", {"num_heads": 4}),
    "timm_gap_fcnorm": ("timm_gap_fcnorm.safetensors", {"num_heads": 4}),
    "hf_classifier": ("hf_classifier", {}),
    "k1_bit_resnetv2": ("k1_bit_resnetv2.ckpt.npz", {"image_size": 64}),
}


def case_path(name):
    """The checkpoint of a case."""
    return REFERENCE / FILES.get(name, (f"{name}.ckpt.npz", {}))[0]


def case_model(name, **options):
    """The model that the checkpoint of a case describes, loaded."""
    return from_checkpoint(case_path(name), **{**FILES.get(name, ("", {}))[1], **options})


def case_outputs(name):
    """The inputs and outputs of a case."""
    return read_npz(f"{name}.io.npz")


def read_npz(name):
    with np.load(REFERENCE / name, allow_pickle=False) as arrays:
        return dict(arrays)


def assert_intermediate(actual, expected):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=INTERMEDIATE_TOLERANCE * scale)


def assert_logits(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=LOGITS_TOLERANCE)
