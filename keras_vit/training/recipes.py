"""Training settings as frozen rows, the paper's and those made from them."""

import dataclasses
import math
from typing import Literal

from keras_vit.data.augmentations import AUGMENTATIONS

OPTIMIZERS = ("adamw", "sgd")
DECAYS = ("linear", "cosine")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Exactly one of `epochs` and `steps` says how long.

    Args:
        image_size: side of the square training images, in pixels.
        batch_size: images in a step.
        optimizer: AdamW, or SGD with momentum 0.9.
        learning_rate: reached at the end of the warm-up.
        decay: of the learning rate after the warm-up, to the end of training.
        warmup_steps: steps in which the learning rate rises linearly from 0.
        epochs: passes over the training split.
        steps: updates of the weights.
        weight_decay: decoupled, of kernels alone; times the learning rate.
        clip_norm: global norm at which gradients are clipped.
        dropout: rate for a model that is built or read from another project's file; a `.keras` file
            keeps its own, a ResNet has none.
        pre_logits: whether a model that is built has the pre-training head's hidden tanh layer; a
            ResNet has none.
        min_crop_area: smallest part of a training image's area that a random crop has; `None` for
            no crop.
        flip: whether to flip training images left and right at random.
        augmentation: what else is done to training images, a row of `data.AUGMENTATIONS`.
        seed: of weights, dropout, shuffling and augmentation.
    """

    image_size: int
    batch_size: int
    optimizer: Literal[OPTIMIZERS]
    learning_rate: float
    decay: Literal[DECAYS]
    warmup_steps: int
    epochs: int | None = None
    steps: int | None = None
    weight_decay: float = 0.0
    clip_norm: float | None = None
    dropout: float = 0.0
    pre_logits: bool = False
    min_crop_area: float | None = 0.05
    flip: bool = True
    augmentation: Literal[tuple(AUGMENTATIONS)] = "none"
    seed: int = 0

    def __post_init__(self):
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "Exactly one of `epochs` and `steps` must be given, the other must be None. "
                f"Received: epochs={self.epochs}, steps={self.steps}"
            )
        choices_of = {
            "optimizer": OPTIMIZERS,
            "decay": DECAYS,
            "augmentation": tuple(AUGMENTATIONS),
        }
        for field, choices in choices_of.items():
            value = getattr(self, field)
            if value not in choices:
                raise ValueError(f"`{field}` must be one of {choices}. Received: {field}={value!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"`dropout` must be at least 0 and less than 1. Received: dropout={self.dropout}"
            )
        for field in ("image_size", "batch_size", "learning_rate", "epochs", "steps", "clip_norm"):
            value = getattr(self, field)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"`{field}` must be positive. Received: {field}={value}")
        if self.min_crop_area is not None and not 0 < self.min_crop_area <= 1:
            raise ValueError(
                "`min_crop_area` must be greater than 0 and at most 1. "
                f"Received: min_crop_area={self.min_crop_area}"
            )
        for field in ("warmup_steps", "weight_decay", "seed"):
            value = getattr(self, field)
            if not 0 <= value < math.inf:
                raise ValueError(f"`{field}` must not be negative. Received: {field}={value}")
        if self.seed >= 2**32:
            raise ValueError(f"`seed` must be less than 2**32. Received: seed={self.seed}")

    def smoke(self):
        """The same recipe, shrunk to seconds on a laptop.

        Example:
        >>> FINETUNE.smoke().steps
        8
        """
        return dataclasses.replace(
            self, image_size=32, batch_size=8, warmup_steps=2, epochs=None, steps=8
        )

    def epoch_lengths(self, num_examples):
        """How many epochs of how many steps to run on so many examples.

        Returns:
            `(epochs, steps_per_epoch)`. A recipe in steps is run in epochs of about one pass over
            the examples and of equal length, so up to `epochs - 1` steps may be left out.

        Raises:
            ValueError: if the warm-up would take all the steps.
        """
        steps_per_pass = -(-num_examples // self.batch_size)
        if self.epochs is not None:
            epochs, steps_per_epoch = self.epochs, steps_per_pass
        else:
            epochs = max(1, self.steps // steps_per_pass)
            steps_per_epoch = self.steps // epochs
        if self.warmup_steps >= epochs * steps_per_epoch:
            raise ValueError(
                "`warmup_steps` must be smaller than the steps of the run, "
                f"{epochs * steps_per_epoch}. Received: warmup_steps={self.warmup_steps}"
            )
        return epochs, steps_per_epoch


# Table 3 of the ViT paper (arXiv 2010.11929), ViT-B/16 on ImageNet-21k.
PRETRAIN = Recipe(
    image_size=224,
    batch_size=4096,
    optimizer="adamw",
    learning_rate=1e-3,
    decay="linear",
    warmup_steps=10_000,
    epochs=90,
    weight_decay=0.03,
    dropout=0.1,
    pre_logits=True,
)

# Table 4 of the ViT paper; base learning rate, warm-up and steps as `vit_jax/configs/common.py`
# has them for ImageNet.
FINETUNE = Recipe(
    image_size=384,
    batch_size=512,
    optimizer="sgd",
    learning_rate=0.03,
    decay="cosine",
    warmup_steps=500,
    steps=20_000,
    clip_norm=1.0,
)

# The same two for the 8 x 8 pixel digits. A flipped digit is no digit, and a small crop is any.
DIGITS_PRETRAIN = dataclasses.replace(
    PRETRAIN,
    image_size=16,
    batch_size=32,
    warmup_steps=50,
    epochs=100,
    min_crop_area=0.5,
    flip=False,
)
DIGITS_FINETUNE = dataclasses.replace(
    FINETUNE,
    image_size=24,
    batch_size=32,
    warmup_steps=10,
    steps=100,
    min_crop_area=None,
    flip=False,
)

RECIPES = {
    "pretrain": PRETRAIN,
    "finetune": FINETUNE,
    "digits_pretrain": DIGITS_PRETRAIN,
    "digits_finetune": DIGITS_FINETUNE,
}
