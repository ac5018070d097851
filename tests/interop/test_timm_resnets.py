"""timm reads the files of hybrids and of BiT that we write, and gives the same numbers."""

import numpy as np
import pytest
from keras import ops

import keras_vit
from tests.fixtures.reference import LOGITS_TOLERANCE

IMAGES = np.random.default_rng(0).uniform(-1, 1, size=(2, 64, 64, 3)).astype("float32")


def with_wide_kernels(model):
    """Random weights; kernels of a deviation near 1, where timm's other epsilons make no odds."""
    for index, weight in enumerate(model.weights):
        rng = np.random.default_rng(index)
        values = rng.normal(size=weight.shape)
        if "conv" not in weight.path:
            values *= 0.05
        weight.assign(values + 1 if weight.name == "gamma" else values)
    return model


@pytest.mark.parametrize(
    ("builder", "options", "format", "name", "timm_options"),
    [
        ("BiT_R50x1", {}, "big_transfer", "resnetv2_50x1_bit", {}),
        ("R26_S32", {"activation": "gelu"}, "google", "vit_small_r26_s32_224", {"img_size": 64}),
        ("R_Ti16", {"activation": "gelu"}, "google", "vit_tiny_r_s16_p8_224", {"img_size": 64}),
    ],
)
def test_timm_reads_it(timm, builder, options, format, name, timm_options, tmp_path):
    import torch

    model = getattr(keras_vit, builder)(num_classes=10, image_size=64, **options)
    with_wide_kernels(model)
    keras_vit.save_checkpoint(model, tmp_path / "file.npz", format)
    theirs = timm.create_model(name, num_classes=10, **timm_options).eval()
    theirs.load_pretrained(str(tmp_path / "file.npz"))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())).numpy()
    logits = ops.convert_to_numpy(model(IMAGES))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=LOGITS_TOLERANCE)
