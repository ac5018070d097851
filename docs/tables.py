"""Write the tables of models and of benchmarks in docs/ and README.md.

Example: nox -s docs
"""

import csv
import functools
import json
import pathlib
import re

from keras_vit.checkpoints import list_checkpoints
from keras_vit.cli.command import markdown_table
from keras_vit.cli.models import COLUMNS, table_row
from keras_vit.models.variants import VARIANTS

DOCS = pathlib.Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
SETTINGS = tuple(
    (backend, dtype)
    for backend in ("tensorflow", "jax", "torch")
    for dtype in ("float32", "mixed_bfloat16")
)
RESNETS = (("BiT_R50x1", "tensorflow"), ("BiT_R50x1", "torch"), ("R50_B16", "torch"))
# With the tanh GELU and with the erf GELU.
OURS = ("keras_vit", "keras_vit erf")
PEER_COLUMNS = (
    *("ViT-B/16 on", "relative to", "forward", "forward, erf"),
    *("training step", "training step, erf"),
)
RESNET_COLUMNS = ("In float32", "relative to", "forward", "training step")
SERVED = {"ViT_B16": "ViT-B/16", "R50_B16": "R50+ViT-B/16", "BiT_R50x1": "BiT-R50x1"}
SERVING_COLUMNS = ("ms, 1 image", "ms, 8 images", "images/s", "speed to float32", "difference")
PUBLISHED_COLUMNS = (
    *("builder", "parameters", "GFLOPs at 224 pixels", "best published file"),
    *("image size of the file", "top-1 accuracy of the file"),
)
SPEED_COLUMNS = ("on 2 CPU cores", "images per second", "peak memory, GiB")


def tables():
    """Return the generated tables of each page, by its path from docs/."""
    rows = list(map(table_row, VARIANTS))
    return {
        "../README.md": [markdown_table(PUBLISHED_COLUMNS, list(_published_rows(rows)))],
        "models.md": [markdown_table(COLUMNS, rows), _speeds()],
        "performance.md": [_vit_peers(), _resnet_peers()],
        "serving.md": [_serving_table(model, title) for model, title in SERVED.items()],
    }


def _published_rows(rows):
    """Yield the file with the best reported accuracy of each model that has one."""
    for name, *_, parameters, flops in rows:
        files = [row for row in list_checkpoints() if row.name.startswith(f"{name}/")]
        best = max(files, key=lambda row: row.accuracy or 0, default=None)
        if best and best.accuracy:
            tag = best.name.partition("/")[2]
            pixels = f"{best.image_size}"
            yield f"`{name}`", parameters, flops, f"`{tag}`", pixels, f"{best.accuracy:.2f} %"


def _speeds():
    """Return the table of what `keras-vit benchmark` measured."""
    with (RESULTS / "models.csv").open() as file:
        rows = [
            (
                f"`{row['model']}`",
                f"{float(row['images_per_second']):.1f}",
                f"{int(row['peak_bytes']) / 2**30:.2f}",
            )
            for row in csv.DictReader(file)
        ]
    return markdown_table(SPEED_COLUMNS, rows)


def _vit_peers():
    rows = [
        row
        for backend, dtype in SETTINGS
        for row in _rows(f"{backend}, {dtype}", _results("ViT_B16", backend, dtype), OURS)
    ]
    return markdown_table(PEER_COLUMNS, rows)


def _resnet_peers():
    rows = [
        row
        for model, backend in RESNETS
        for row in _rows(f"{model} on {backend}", _results(model, backend, "float32"), OURS[:1])
    ]
    return markdown_table(RESNET_COLUMNS, rows)


def _rows(label, results, kinds):
    peers = [name for name in results["forward"] if name not in OURS]
    return [(label, peer, *_ratios(results, peer, kinds)) for peer in peers]


def _results(model, backend, dtype):
    return json.loads((RESULTS / f"throughput-{model}-{backend}-{dtype}.json").read_text())


def _ratios(results, peer, kinds):
    """Return the medians and ranges of the forward pass, then of the training step."""
    return [
        "{:.2f} ({:.2f} to {:.2f})".format(*results[part][peer][f"ratio of {kind}"])
        for part in ("forward", "training")
        for kind in kinds
    ]


def _serving_table(model, title):
    runtimes = json.loads((RESULTS / f"serving-{model}.json").read_text())["runtimes"]
    rows = []
    for name, results in runtimes.items():
        ranges = results["milliseconds"]
        # Such as `openvino int8`.
        own = runtimes.get(f"{name.partition(' ')[0]} float32", results)["milliseconds"]
        ratios = [f"{own[size][0] / ranges[size][0]:.2f}" for size in ("1", "8")]
        cells = ["{:.0f} ({:.0f} to {:.0f})".format(*ranges[size]) for size in ("1", "8")]
        cells += [f"{8000 / ranges['8'][0]:.1f}", "" if own is ranges else ", ".join(ratios)]
        rows.append((name, *cells, f"{results['difference']:.1e}"))
    return markdown_table((title, *SERVING_COLUMNS), rows)


def with_table(page, table):
    """Return a page whose table with the same columns is replaced."""
    columns = re.escape(table.splitlines()[0])
    rows = re.compile(rf"^{columns}\n(\|.*\n)+", flags=re.MULTILINE)
    page, count = rows.subn(lambda match: f"{table}\n", page)
    if count != 1:
        raise ValueError(f"A page must have the table once. Received: {count} of {columns}")
    return page


if __name__ == "__main__":
    for name, found in tables().items():
        path = DOCS / name
        path.write_text(functools.reduce(with_table, found, path.read_text()))
