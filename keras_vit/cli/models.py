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
    markdown: bool = False
    """Print a Markdown table."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints the table."""
        from keras_vit.cli.tables import markdown_table, plain_table

        rows = list(table_rows(self.image_size, self.num_classes))
        print((markdown_table if self.markdown else plain_table)(COLUMNS, rows))


COLUMNS = ("model", "patch", "width", "depth", "heads", "MLP", "parameters", "GFLOPs")


def table_rows(image_size, num_classes):
    """One row of strings for each variant that the image size fits."""
    from keras_vit.evaluation.compute import count_flops, count_parameters
    from keras_vit.models.variants import VARIANTS

    if image_size < 1 or num_classes < 0:
        raise ValueError(
            "`image_size` must be positive and `num_classes` not negative. "
            f"Received: image_size={image_size}, num_classes={num_classes}"
        )
    for row in VARIANTS:
        fits = image_size % row.patch_size == 0
        parameters = count_parameters(row, num_classes, image_size)
        flops = count_flops(row, num_classes, image_size)
        yield (
            row.name,
            f"{row.patch_size}",
            f"{row.embedding_dim}",
            f"{row.depth}",
            f"{row.num_heads}",
            f"{row.mlp_dim}",
            f"{parameters / 1e6:,.1f} M" if fits else "-",
            f"{flops / 1e9:,.1f}" if fits else "-",
        )
