"""Zero-shot classifiers give the logits of the real transformers for images and texts."""

import numpy as np
import pytest
import torch

import keras_vit
from tests.fixtures.contract import to_numpy
from tests.fixtures.peers.torch_models import torch_images
from tests.interop.test_transformers_towers import CASES, IMAGES, TEXT, WIDE, theirs_of

TOKENS = torch.tensor([[5, 9, 2, 2, 2], [7, 4, 3, 2, 2], [8, 2, 2, 2, 2]])


# The text embeddings of SigLIP have the width of the image embeddings.
SIGLIP_TEXT = {**TEXT, "projection_size": WIDE["hidden_size"]}
MODELS = {
    "CLIPModel": CASES["CLIPModel"][0],
    "SiglipModel": ("SiglipConfig", {"text_config": SIGLIP_TEXT, "vision_config": WIDE}),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_images_and_texts(name, tmp_path):
    theirs = theirs_of(name, *MODELS[name])
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs(TOKENS, torch_images(IMAGES)).logits_per_image.numpy()
        texts = theirs.get_text_features(TOKENS).pooler_output
        scale = theirs.logit_scale.exp().item()
        bias = theirs.logit_bias.item() if name == "SiglipModel" else 0.0
    tower = keras_vit.from_checkpoint(tmp_path)
    model = keras_vit.zero_shot(tower, texts, scale=scale, bias=bias)
    np.testing.assert_allclose(to_numpy(model(IMAGES)), expected, rtol=0, atol=2e-5)
