"""`keras-vit benchmark`: measure the speed and the memory of models."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Policy, Table

COLUMNS = (
    *("model", "pixels", "task", "dtype", "images/s", "batch", "peak memory, GiB"),
    "largest batch (estimate)",
)


@dataclasses.dataclass
class Benchmark(Table):
    """Measure how fast a model is on this machine, and how large a batch fits into its memory.

    Each line of the table has the fastest batch size, the peak memory at this size, and an estimate
    of the largest batch that fits.

    Example: keras-vit benchmark ViT_B16 --image-sizes 224 384

    Args:
        models: names of variants (see `keras-vit models`), .keras files, directories of runs, or
            checkpoints as in `keras-vit convert`.
        image_sizes: sides of the square images, in pixels; by default 224, or, for a trained model,
            the size of its images.
        batch_sizes: batch sizes to measure, in rising order. By default the batch size is
            multiplied by 4 while that is faster.
        tasks: what to measure: `model.predict` (forward), `model.fit` (training), or both.
            Segmenters are measured `forward` only.
        dtype: dtype policy of the models; by default float32 or, for a .keras file, the policy in
            the file.
        seconds: duration of a measurement; it ends earlier after 100 steps.
        output: new CSV file for all measurements. With several image sizes, a figure of the same
            name is drawn next to it.
    """

    models: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="MODEL [MODEL ...]", help_behavior_hint="(required)"),
    ]
    image_sizes: tuple[int, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    tasks: tuple[Literal["forward", "training"], ...] = ("forward", "training")
    dtype: Policy | None = None
    seconds: float = 2.0
    output: pathlib.Path | None = None

    def run(self):
        """Measure, and print a table."""
        import importlib.util

        import tqdm

        from keras_vit.core.files import write_csv
        from keras_vit.experiments.benchmark import benchmark
        from keras_vit.inspection.figures.charts import draw_costs

        output = self.output and self.output.expanduser().resolve()
        if output is not None and output.exists():
            raise ValueError(
                "`output` must be a new file, so that no measurements are lost. "
                f"Received: {str(output)!r}, which exists"
            )
        options = ("models", "image_sizes", "batch_sizes", "tasks", "dtype", "seconds")
        measurements = benchmark(**{name: getattr(self, name) for name in options})
        costs, rows = [], []
        # If a measurement fails, print the measurements before it.
        try:
            for cost in tqdm.tqdm(measurements, "measuring"):
                costs.append(cost)
                rows += csv_rows(cost)
                if output is not None and rows:
                    write_csv(output, rows)
        finally:
            if costs:
                self.print_table(COLUMNS, map(cells, costs))
        if output is not None and rows:
            print(f"All measurements: {output}")
            if len(self.image_sizes or ()) > 1 and importlib.util.find_spec("matplotlib"):
                draw_costs(costs, output.with_suffix(".png"))
                print(f"Figure: {output.with_suffix('.png')}")


def csv_rows(cost):
    """Return one row per batch size of a `Cost`, for the CSV file."""
    return [
        {
            "model": cost.model,
            "image_size": cost.image_size,
            "task": cost.task,
            "batch_size": size,
            "images_per_second": speed,
            "peak_bytes": peak,
            "dtype": cost.dtype,
        }
        for size, speed, peak in cost.points
    ]


def cells(cost):
    """Return the row of a `Cost` in the printed table."""
    largest = "?" if cost.largest_batch is None else f"{cost.largest_batch:,}"
    best = "-", "-", "-"
    if cost.points:
        batch_size, speed, memory = cost.best
        best = f"{speed:,.1f}", f"{batch_size}", f"{memory / 2**30:.2f}"
    return cost.model, f"{cost.image_size or '?'}", cost.task, cost.dtype or "?", *best, largest
