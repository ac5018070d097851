"""`keras-vit benchmark`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro


@dataclasses.dataclass
class Benchmark:
    """Measure how fast a model is on this machine, and how large a batch fits into its memory.

    Each line has the batch size with the most images per second, the peak memory with it, and the
    largest batch that fits: tried on an accelerator, and estimated (~) on a CPU.

    Example: keras-vit benchmark ViT_B16 --image-sizes 224 384
    """

    models: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="MODEL [MODEL ...]", help_behavior_hint="(required)"),
    ]
    """Names of variants (see `keras-vit models`), .keras files, directories of runs, or checkpoints
    as in `keras-vit convert`."""
    image_sizes: tuple[int, ...] | None = None
    """Sides of the square images, in pixels; by default 224, or the size of a trained model."""
    batch_sizes: tuple[int, ...] | None = None
    """Batch sizes to measure. By default they are doubled while that is faster, on an accelerator
    multiplied by 4."""
    tasks: tuple[Literal["forward", "training"], ...] = ("forward", "training")
    """What to measure: `model.predict`, `model.fit`, or both. Segmenters are measured `forward`."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] | None = None
    """Dtype policy of the models; by default float32, and for a .keras file its own."""
    seconds: float = 2.0
    """Least time of a measurement."""
    output: pathlib.Path | None = None
    """New CSV file to write all measurements to. With several image sizes, a figure of the same
    name is drawn in the same folder."""
    markdown: bool = False
    """Print a Markdown table."""

    def run(self):
        """Measure, and print a table."""
        import tqdm

        from keras_vit.cli.arguments import markdown_table, plain_table
        from keras_vit.experiments.benchmark import benchmark, device_name

        if self.output is not None and not self.output.expanduser().parent.is_dir():
            raise ValueError(
                f"`output` must be a file in a folder that exists. Received: {str(self.output)!r}"
            )
        if self.output is not None and self.output.expanduser().exists():
            raise ValueError(
                "`output` must be a new file, so that no measurements are lost. "
                f"Received: {str(self.output)!r}, which exists"
            )
        options = ("models", "image_sizes", "batch_sizes", "tasks", "dtype", "seconds")
        total = len(self.models) * len(self.image_sizes or (None,)) * len(self.tasks)
        found = []
        costs = benchmark(
            **{name: getattr(self, name) for name in options},
            show=lambda text: progress.set_postfix_str(text),
        )
        # One that fails later does not lose those before it.
        try:
            with tqdm.tqdm(total=total, desc="measuring") as progress:
                for cost in costs:
                    found.append(cost)
                    self._write(found)
                    progress.update()
        finally:
            if found:
                table = markdown_table if self.markdown else plain_table
                print(device_name())
                print(table(COLUMNS, list(map(cells, found))))
        self._show_files(found)

    def _write(self, costs):
        from keras_vit.core.files import write_csv

        rows = [
            (cost.model, cost.image_size, cost.task, *point, cost.dtype)
            for cost in costs
            for point in cost.points
        ]
        if self.output is not None and rows:
            rows = [dict(zip(CSV_COLUMNS, row, strict=True)) for row in rows]
            write_csv(self.output.expanduser().resolve(), rows)

    def _show_files(self, costs):
        import importlib.util

        from keras_vit.inspection.figures.charts import draw_costs

        if self.output is None or not any(cost.points for cost in costs):
            return
        output = self.output.expanduser().resolve()
        print(f"All measurements: {output}")
        if len(self.image_sizes or ()) > 1 and importlib.util.find_spec("matplotlib"):
            picture = output.with_suffix(".png")
            draw_costs(costs, picture)
            print(f"Figure: {picture}")


COLUMNS = (
    *("model", "pixels", "task", "dtype", "images/s", "batch", "peak memory, GiB"),
    "largest batch",
)
CSV_COLUMNS = (
    *("model", "image_size", "task", "batch_size", "images_per_second", "peak_bytes"),
    "dtype",
)


def cells(cost):
    """Return the cells of a `Cost`."""
    mark = "~" if cost.is_estimated else ""
    largest = "?" if cost.largest_batch is None else f"{mark}{cost.largest_batch:,}"
    best = "-", "-", "-"
    if cost.points:
        batch_size, speed, memory = cost.best
        best = f"{speed:,.1f}", f"{batch_size}", f"{memory / 2**30:.2f}"
    found = cost.model, f"{cost.image_size or '?'}", cost.task, cost.dtype or "?"
    return *found, *best, largest
