"""`keras-vit models` and `keras-vit checkpoints`: list the variants and published checkpoints."""

import dataclasses
from typing import Annotated, ClassVar

import tyro

from keras_vit.cli.command import Table

COLUMNS = (
    *("model", "ResNet stages", "patch", "width", "depth", "heads", "MLP"),
    *("parameters", "GFLOPs"),
)
COST_COLUMNS = (
    *("model", "parameters", "GFLOPs, forward", "GFLOPs, training step"),
    *("activations, MiB", "with remat, MiB"),
)

Words = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD ...]")]


@dataclasses.dataclass
class Models(Table):
    """List the architectures with their sizes and costs.

    Example: keras-vit models ViT_B --image-size 384

    Args:
        filter: words that the name of a model must contain.
        image_size: side of the square images for which to count parameters and operations. For a
            model whose patches do not tile these images, `-` is printed.
        num_classes: number of classes of the head; 0 for no head.
        flops: print other costs: the operations of a forward pass and of a training step, and the
            activations per image that a training step stores in float32 (half in bfloat16).
    """

    filter: Words = ()
    image_size: int = 224
    num_classes: int = 1000
    flops: bool = False

    needs_keras: ClassVar[bool] = False

    def run(self):
        """Print the table."""
        from keras_vit.models.variants import VARIANTS

        words = [word.lower() for word in self.filter]
        variants = [v for v in VARIANTS if all(word in v.name.lower() for word in words)]
        row_of, columns = (cost_row, COST_COLUMNS) if self.flops else (table_row, COLUMNS)
        self.print_table(columns, (row_of(v, self.image_size, self.num_classes) for v in variants))


def cost_row(variant, image_size=224, num_classes=1000):
    """Return the costs per image of a variant as strings."""
    from keras_vit.evaluation.costs import count_activations
    from keras_vit.models.options import is_resnet

    counted = _count(variant, image_size, num_classes)
    if counted is None:
        return (variant.name, *"-----")
    parameters, flops = counted
    activations = [count_activations(variant, image_size)]
    if not is_resnet(variant):
        activations.append(count_activations(variant, image_size, remat=True))
    sizes = [f"{4 * count / 2**20:,.1f}" for count in activations]
    # The backward pass of a matrix product is two matrix products.
    operations = f"{flops:,.1f}", f"{3 * flops:,.1f}"
    return (variant.name, f"{parameters:,.1f} M", *operations, *(*sizes, "-")[:2])


def table_row(variant, image_size=224, num_classes=1000):
    """Return the sizes of a variant as strings."""
    from keras_vit.models.options import is_resnet

    if is_resnet(variant):
        architecture = (_stages_cell(variant.stages), "-", f"{variant.width}", "-", "-", "-")
    else:
        # The stride of a hybrid includes the stride of its ResNet.
        sizes = variant.stride[0], variant.embedding_dim, variant.depth
        sizes += variant.num_heads, variant.mlp_dim
        architecture = (_stages_cell(variant.resnet_stages), *map(str, sizes))
    counted = _count(variant, image_size, num_classes)
    costs = ("-", "-") if counted is None else (f"{counted[0]:,.1f} M", f"{counted[1]:,.1f}")
    return (variant.name, *architecture, *costs)


def _count(variant, image_size, num_classes):
    """Return millions of parameters and GFLOPs; `None` if patches do not tile the image."""
    from keras_vit.evaluation.costs import count_flops, count_parameters

    if image_size % variant.stride[0]:
        return None
    sizes = num_classes, image_size
    return count_parameters(variant, *sizes) / 1e6, count_flops(variant, *sizes) / 1e9


def _stages_cell(stages):
    return "-" if stages is None else ", ".join(map(str, stages)) or "root"


@dataclasses.dataclass
class Checkpoints(Table):
    """List the published checkpoints.

    Example: keras-vit checkpoints b16 augreg

    Args:
        filter: words that the name or address of a checkpoint must contain.
        urls: add a column with the addresses.
    """

    filter: Words = ()
    urls: bool = False

    needs_keras: ClassVar[bool] = False

    def run(self):
        """Print the table."""
        from keras_vit.checkpoints.catalog import list_checkpoints

        columns = ("name", "size", "classes", "top-1") + ("address",) * self.urls
        checkpoints = list_checkpoints(" ".join(self.filter))
        self.print_table(columns, (cells_of(row)[: len(columns)] for row in checkpoints))


def cells_of(checkpoint):
    """Return the cells of a checkpoint's row."""
    classes = f"{checkpoint.num_classes}" + (" (zero)" if checkpoint.zero_head else "")
    accuracy = f"{checkpoint.accuracy:.2f}" if checkpoint.accuracy else "-"
    return checkpoint.name, f"{checkpoint.image_size}", classes, accuracy, checkpoint.url
