"""How a model is trained, as one frozen row."""

import dataclasses
from typing import Literal

from keras_vit.data.images.augmentations import AUGMENTATIONS
from keras_vit.training.recipes.checks import check_recipe

OPTIMIZERS = ("adamw", "sgd")
CLASS_LOSSES = ("softmax", "sigmoid")
# Those of `masked_patch_predictor`, which the command line cannot wait for.
TARGETS = ("mean_colour", "downsized", "pixels")
DECAYS = ("linear", "cosine", "rsqrt", "staircase")
POOLINGS = ("token", "gap", "map")
POSITION_EMBEDDINGS = ("learned", "learned2d", "sincos2d", "none")
FLIPS = ("never", "random", "always")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Exactly one of `epochs` and `steps` says how long.

    Args:
        image_size: side of the square training images, in pixels.
        batch_size: images in a step.
        optimizer: AdamW, or SGD with momentum 0.9.
        learning_rate: reached at the end of the warm-up.
        learning_rates: those from which one is chosen on held-out images (`--sweep-lr`).
        decay: of the learning rate after the warm-up: linear or cosine to the end of training, by
            the reciprocal square root of the steps, or in a staircase.
        warmup_steps: steps in which the learning rate rises linearly from 0.
        boundaries: of a staircase, the steps after which the learning rate is a tenth.
        epochs: passes over the training split.
        steps: updates of the weights.
        weight_decay: decoupled, of kernels alone; times the learning rate.
        loss: cross-entropy of the softmax, or of a sigmoid for each class; or how well a masked
            patch is predicted, its `"mean_colour"`, its colours `"downsized"` to 4 x 4, or its
            `"pixels"`.
        label_smoothing: share of a label that is spread over all classes, of the softmax alone.
        head_bias: of a new head; with a sigmoid, -10 says that each class is rare.
        layer_decay: each block has the learning rate of the block behind it times this.
        frozen_blocks: so many of the first blocks, and all before them, are not trained.
        accumulation_steps: parts into which a batch is cut, one after the other, where it does not
            fit into the memory as a whole.
        remat: whether the activations of blocks are computed again instead of kept, where a batch
            does not fit into the memory.
        average_momentum: of an average of the weights over the updates (Polyak), which is then
            what is evaluated; `None` for none.
        clip_norm: global norm at which gradients are clipped.
        dropout: rate for a model that is built or read from another project's file; a `.keras` file
            keeps its own, a ResNet has none.
        pre_logits: whether a model that is built has the pre-training head's hidden tanh layer; a
            ResNet has none.
        pooling: of a model that is built, as in `vision_transformer`.
        position_embedding: of a model that is built, as in `vision_transformer`.
        min_crop_area: smallest part of a training image's area that a random crop has; `None` for
            no crop.
        random_crop_from: side of the square to which training images are resized before a random
            part is cut out, instead of `min_crop_area`; `None` for not.
        flip: whether training images are flipped left and right: never, at random, or always, as
            big_transfer does.
        augmentation: what else is done to training images, a row of `data.AUGMENTATIONS`.
        seed: of weights, dropout, shuffling and augmentation.
    """

    image_size: int
    batch_size: int
    optimizer: Literal[OPTIMIZERS]
    learning_rate: float
    decay: Literal[DECAYS]
    warmup_steps: int
    boundaries: tuple[int, ...] = ()
    epochs: int | None = None
    steps: int | None = None
    weight_decay: float = 0.0
    loss: Literal[CLASS_LOSSES + TARGETS] = "softmax"
    label_smoothing: float = 0.0
    head_bias: float = 0.0
    layer_decay: float = 1.0
    frozen_blocks: int = 0
    accumulation_steps: int = 1
    remat: bool = False
    average_momentum: float | None = None
    clip_norm: float | None = None
    dropout: float = 0.0
    pre_logits: bool = False
    pooling: Literal[POOLINGS] = "token"
    position_embedding: Literal[POSITION_EMBEDDINGS] = "learned"
    min_crop_area: float | None = 0.05
    random_crop_from: int | None = None
    flip: Literal[FLIPS] = "random"
    augmentation: Literal[tuple(AUGMENTATIONS)] = "none"
    learning_rates: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self):
        check_recipe(self)

    @property
    def wants_shares(self):
        """Whether labels must be shares of classes."""
        mixes = AUGMENTATIONS[self.augmentation].mixes
        return mixes or self.loss == "sigmoid" or self.label_smoothing > 0

    @property
    def is_of_classes(self):
        """Whether classes are learned, and not what masked patches show."""
        return self.loss in CLASS_LOSSES

    def smoke(self):
        """The same recipe, shrunk to seconds on a laptop.

        Example:
        >>> shared = {"image_size": 384, "batch_size": 512, "optimizer": "sgd", "decay": "cosine"}
        >>> Recipe(learning_rate=0.03, warmup_steps=500, steps=20_000, **shared).smoke().steps
        8
        """
        small = {"image_size": 32, "batch_size": 8, "warmup_steps": 2, "epochs": None, "steps": 8}
        if self.boundaries:
            small["boundaries"] = (4, 6)
        if self.random_crop_from is not None:
            small["random_crop_from"] = 40
        return dataclasses.replace(self, **small)

    def epoch_lengths(self, num_examples):
        """How many epochs of how many steps to run on so many examples.

        Returns:
            `(epochs, steps_per_epoch)`. A recipe in steps is run to the last of them, in epochs of
            equal length: at least a pass over the examples, and 100 steps or a tenth of them, as an
            epoch ends with an evaluation.

        Raises:
            ValueError: if the warm-up would take all the steps, or a boundary is not reached.
        """
        steps_per_pass = -(-num_examples // self.batch_size)
        if self.epochs is not None:
            epochs, steps_per_epoch = self.epochs, steps_per_pass
        else:
            least = max(steps_per_pass, min(100, self.steps // 10), 1)
            lengths = (n for n in range(least, self.steps) if self.steps % n == 0)
            steps_per_epoch = next(lengths, self.steps)
            epochs = self.steps // steps_per_epoch
        total = epochs * steps_per_epoch
        if self.warmup_steps >= total:
            raise ValueError(
                f"`warmup_steps` must be smaller than the steps of the run, {total}. "
                f"Received: warmup_steps={self.warmup_steps}"
            )
        if self.boundaries and self.boundaries[-1] >= total:
            raise ValueError(
                f"`boundaries` must be smaller than the steps of the run, {total}. "
                f"Received: boundaries={self.boundaries}"
            )
        return epochs, steps_per_epoch
