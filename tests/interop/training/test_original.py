"""The original that training is compared with, against what vit_jax computed itself."""

import json

import jax
import numpy as np
import pytest

from tests.fixtures.peers.flax_training import train, vit_jax_optimizer
from tests.fixtures.peers.flax_vit import VisionTransformer, flatten, unflatten
from tests.fixtures.reference import REFERENCE, assert_logits, read_npz

RUN = "x4_finetune_sgd_f32_momentum"
# Names of the released files, and of today's flax.
RENAMED = {"MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0"}
RENAMED |= {"LayerNorm_2": "LayerNorm_1", "MlpBlock_3": "MlpBlock_0"}


def stored(case, **architecture):
    """Return the model of a case, its parameters, and its other arrays."""
    arrays = {}
    for name, array in read_npz(f"{case}.ckpt.npz").items():
        parts = [RENAMED.get(part, part) for part in name.split("/")]
        arrays["/".join(parts)] = array
    return VisionTransformer(**architecture), unflatten(arrays), read_npz(f"{case}.io.npz")


@pytest.mark.parametrize("case", ["a2_vit_token_linen_names", "b_vit_token_rep"])
def test_logits(case):
    facts = json.loads((REFERENCE / f"{case}.json").read_text())
    model, parameters, expected = stored(
        case,
        num_classes=facts["num_classes"],
        patch_size=facts["patch_size"][0],
        width=facts["hidden_size"],
        depth=facts["num_layers"],
        num_heads=facts["num_heads"],
        mlp_dim=facts["mlp_dim"],
        pre_logits=facts["representation_size"] is not None,
    )
    with jax.default_matmul_precision("highest"):
        logits = model.apply({"params": parameters}, expected["images"])
    assert_logits(logits, expected["logits"])


def test_steps():
    """Twelve steps, whose run has the momentum in float32."""
    architecture = {"num_classes": 5, "patch_size": 8, "width": 32, "depth": 2, "num_heads": 4}
    model, parameters, expected = stored(RUN, **architecture, mlp_dim=64)
    recipe = {"learning_rate": 0.02, "warmup_steps": 3, "steps": 12, "decay": "cosine"}
    optimizer = vit_jax_optimizer({**recipe, "clip_norm": 1.0}, "float32")
    images = (expected["images"].astype("float32") - 127.5) / 127.5
    losses, trained = train(
        model, parameters, optimizer, images[expected["picks"]], expected["labels"]
    )
    np.testing.assert_allclose(losses, expected["loss"], rtol=0, atol=1e-5)
    for name, array in flatten(trained).items():
        np.testing.assert_allclose(array, expected[f"final/{name}"], rtol=0, atol=1e-5)
