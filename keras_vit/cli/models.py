"""`keras-vit models`."""

import dataclasses


@dataclasses.dataclass
class Models:
    """List the architectures with their sizes and costs.

    Example: keras-vit models --image-size 384
    """

    image_size: int = 224
    """Side of the square images that parameters and operations are counted for."""
    num_classes: int = 1000
    """Classes of the head; 0 for none."""
    scaling_study: bool = False
    """Print the pre-training runs of the paper's scaling study instead, with the compute that we
    count beside what is reported."""
    markdown: bool = False
    """Print a Markdown table."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints the table."""
        from keras_vit.cli.tables import markdown_table, plain_table

        table = markdown_table if self.markdown else plain_table
        if self.scaling_study:
            print(table(STUDY_COLUMNS, list(study_rows())))
        else:
            print(table(COLUMNS, list(table_rows(self.image_size, self.num_classes))))


COLUMNS = (
    *("model", "ResNet stages", "patch", "width", "depth", "heads", "MLP"),
    *("parameters", "GFLOPs"),
)

STUDY_COLUMNS = (
    *("model", "builder", "epochs", "ImageNet, reported", "exaFLOPs, reported"),
    *("exaFLOPs, counted", "counted / reported"),
)


def study_rows():
    """One row of strings for each run of the scaling study."""
    from keras_vit.evaluation.scaling import SCALING_STUDY, count_exaflops

    for row in SCALING_STUDY:
        counted = count_exaflops(row)
        yield (
            *(row.name, row.builder, f"{row.epochs}", f"{row.imagenet:.2f} %"),
            *(f"{row.exaflops:,}", f"{counted:,.1f}", f"{counted / row.exaflops:.3f}"),
        )


def table_rows(image_size, num_classes):
    """One row of strings for each variant that the image size fits."""
    from keras_vit.evaluation.compute import count_flops, count_parameters
    from keras_vit.models.variants import VARIANTS, ResNetVariant
    from keras_vit.models.vit import total_stride

    if image_size < 1 or num_classes < 0:
        raise ValueError(
            "`image_size` must be positive and `num_classes` not negative. "
            f"Received: image_size={image_size}, num_classes={num_classes}"
        )
    for row in VARIANTS:
        if isinstance(row, ResNetVariant):
            fits, architecture = True, (_units(row.stages), "-", f"{row.width}", "-", "-", "-")
        else:
            # What a token stands for; of a hybrid its ResNet's stride included.
            stride, _ = total_stride(row.patch_size, row.resnet_stages)
            fits = image_size % stride == 0
            sizes = (stride, row.embedding_dim, row.depth, row.num_heads, row.mlp_dim)
            architecture = (_units(row.resnet_stages), *map(str, sizes))
        parameters = count_parameters(row, num_classes, image_size)
        flops = count_flops(row, num_classes, image_size)
        yield (
            row.name,
            *architecture,
            f"{parameters / 1e6:,.1f} M" if fits else "-",
            f"{flops / 1e9:,.1f}" if fits else "-",
        )


def _units(stages):
    if stages is None:
        return "-"
    return ", ".join(map(str, stages)) or "root"
