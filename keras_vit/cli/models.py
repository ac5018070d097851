"""`keras-vit models`."""

import dataclasses
from typing import Annotated, ClassVar

import tyro


@dataclasses.dataclass
class Models:
    """List the architectures with their sizes and costs.

    Example: keras-vit models ViT_B --image-size 384
    """

    filter: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD ...]")
    ] = ()
    """Words that the name of a model must contain."""
    image_size: int = 224
    """Side of the square images that parameters and operations are counted for."""
    num_classes: int = 1000
    """Classes of the head; 0 for none."""
    flops: bool = False
    """Print costs instead: operations of a forward pass and of a training step, and the activations
    per image that a training step keeps, in float32; bfloat16 takes half."""
    scaling_study: bool = False
    """Print the pre-training runs of the paper's scaling study instead, with the reported compute
    and our count of it."""
    markdown: bool = False
    """Print a Markdown table."""

    needs_keras: ClassVar[bool] = False

    def run(self):
        """Print the table."""
        from keras_vit.cli.tables import markdown_table, plain_table

        table = markdown_table if self.markdown else plain_table
        sizes = self.image_size, self.num_classes
        if self.scaling_study:
            columns, rows = STUDY_COLUMNS, study_rows()
        elif self.flops:
            columns, rows = COST_COLUMNS, cost_rows(*sizes)
        else:
            columns, rows = COLUMNS, table_rows(*sizes)
        words = [word.lower() for word in self.filter]
        found = [row for row in rows if all(word in row[0].lower() for word in words)]
        if not found:
            raise ValueError(
                "Each WORD must be a part of the name of a model. "
                f"Received: {' '.join(self.filter)!r}, which matches none"
            )
        print(table(columns, found))
        if not (self.scaling_study or self.markdown):
            self._explain_gaps(found)

    def _explain_gaps(self, found):
        from keras_vit.models.variants import VARIANTS

        names = [row[0] for row in found]
        if not all(_fits(row, self.image_size) for row in VARIANTS if row.name in names):
            print(f"-: the patches of the model do not tile images of {self.image_size} pixels")


COLUMNS = (
    *("model", "ResNet stages", "patch", "width", "depth", "heads", "MLP"),
    *("parameters", "GFLOPs"),
)

COST_COLUMNS = (
    *("model", "parameters", "GFLOPs, forward", "GFLOPs, training step"),
    *("activations, MiB", "with remat, MiB"),
)

STUDY_COLUMNS = (
    *("model", "builder", "epochs", "ImageNet, reported", "exaFLOPs, reported"),
    *("exaFLOPs, counted", "counted / reported"),
)


def study_rows():
    """Return one row of strings per run of the scaling study."""
    from keras_vit.experiments.scaling_study import SCALING_STUDY, count_exaflops

    for row in SCALING_STUDY:
        counted = count_exaflops(row)
        yield (
            *(row.name, row.builder, f"{row.epochs}", f"{row.imagenet:.2f} %"),
            *(f"{row.exaflops:,}", f"{counted:,.1f}", f"{counted / row.exaflops:.3f}"),
        )


def cost_rows(image_size, num_classes):
    """Return the costs per image of each variant, a row of strings."""
    from keras_vit.evaluation.costs import count_activations, count_flops, count_parameters
    from keras_vit.models.options import is_resnet
    from keras_vit.models.variants import VARIANTS

    _check(image_size, num_classes)
    for row in VARIANTS:
        if not _fits(row, image_size):
            yield (row.name, *"-----")
            continue
        flops = count_flops(row, num_classes, image_size) / 1e9
        kept = [count_activations(row, image_size)]
        if not is_resnet(row):
            kept.append(count_activations(row, image_size, remat=True))
        sizes = [f"{4 * numbers / 2**20:,.1f}" for numbers in kept]
        yield (
            row.name,
            f"{count_parameters(row, num_classes, image_size) / 1e6:,.1f} M",
            # The backward pass of a product is two products.
            *(f"{times * flops:,.1f}" for times in (1, 3)),
            *(*sizes, "-")[:2],
        )


def table_rows(image_size, num_classes):
    """Return one row of strings per variant, without sizes where its patches do not fit."""
    from keras_vit.evaluation.costs import count_flops, count_parameters
    from keras_vit.models.options import is_resnet
    from keras_vit.models.variants import VARIANTS

    _check(image_size, num_classes)
    for row in VARIANTS:
        if is_resnet(row):
            architecture = (_units(row.stages), "-", f"{row.width}", "-", "-", "-")
        else:
            # In a hybrid the stride of its ResNet counts too.
            sizes = (row.stride[0], row.embedding_dim, row.depth, row.num_heads, row.mlp_dim)
            architecture = (_units(row.resnet_stages), *map(str, sizes))
        costs = ("-", "-")
        if _fits(row, image_size):
            parameters = count_parameters(row, num_classes, image_size)
            flops = count_flops(row, num_classes, image_size)
            costs = f"{parameters / 1e6:,.1f} M", f"{flops / 1e9:,.1f}"
        yield (row.name, *architecture, *costs)


def _check(image_size, num_classes):
    if image_size < 1 or num_classes < 0:
        raise ValueError(
            "`image_size` must be positive and `num_classes` not negative. "
            f"Received: image_size={image_size}, num_classes={num_classes}"
        )


def _fits(row, image_size):
    """Return whether patches tile the image."""
    return image_size % row.stride[0] == 0


def _units(stages):
    return "-" if stages is None else ", ".join(map(str, stages)) or "root"
