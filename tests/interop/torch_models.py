"""Torch models with weights by which every convention shows."""

import numpy as np
import torch

IMAGES = np.random.default_rng(0).normal(size=(2, 32, 48, 3)).astype("float32")
# Float32 noise is below 2e-6 here; a wrong GELU moves the logits by more than 1e-4.
TOLERANCE = 1e-5


def randomise(model):
    """Weights large enough that a wrong GELU or epsilon shows; torch's own are small."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_scale = "norm" in name and name.endswith("weight")
            parameter.copy_(1 + 0.2 * noise if is_scale else 0.2 * noise)
    return model.eval()


def torch_images(images=IMAGES):
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
