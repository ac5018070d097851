"""A row of THE table of published checkpoints: facts about the weights, not the architecture."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One published file.

    Args:
        variant: name of the builder of the model.
        tag: name among the files of that builder, as in `weights="imagenet21k"`.
        url: address of the file.
        image_size: side of the images of the last training, in pixels.
        num_classes: width of the head, 0 for an image tower without one.
        representation_size: width of the hidden layer `pre_logits` of the head, if there is one.
        activation: activation of the MLPs: `"gelu_tanh"`, `"gelu"` (erf; weights trained in
            PyTorch), or `"relu"` (BiT).
        pooling: pooling before the head.
        position_embedding: kind of the position embedding; files without learned positions do not
            record it.
        value_range: range of the pixels.
        zero_head: whether the head was set to zero before publication.
        accuracy: reported top-1 on ImageNet-1k in percent, `None` if none is reported for this very
            file.
        source: source of the file and its accuracy: a file of a repository, or arXiv.
        license: license of the weights, as their page on the Hub says it; empty if there is none.
        linear_accuracy: reported top-1 on ImageNet-1k, in percent, of a linear classifier of the
            features of a file without a classifier.
    """

    variant: str
    tag: str
    url: str
    image_size: int
    num_classes: int
    representation_size: int | None = None
    activation: str = "gelu_tanh"
    pooling: str = "token"
    position_embedding: str = "learned"
    value_range: tuple = (-1, 1)
    zero_head: bool = False
    accuracy: float | None = None
    source: str = ""
    license: str = ""
    linear_accuracy: float | None = None

    @property
    def name(self):
        """Name in the whole table, such as `"ViT_B16/imagenet21k"`."""
        return f"{self.variant}/{self.tag}"
